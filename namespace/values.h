/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a request is refused for a value that another door cannot live with: an
 * owner who is nobody, a time that no file can have (store/attrs.h). Whatever comes from either
 * door passes here. What the mount's kernel says of times is made to fit before.
 *
 * Names and paths are judged where they are taken apart (rule N6), modes, types and sizes by the
 * operation, which knows what they are of.
 *
 * Threads: any. Blocking, allocation: none.
 */
#ifndef LP_NAMESPACE_VALUES_H
#define LP_NAMESPACE_VALUES_H

#include "namespace/ns.h"

/* The name of the first such value, or NULL. Of LP_NS_STORE nothing is asked here: its changes are
 * asked one by one. */
const char *lpi_values_fault(const struct lp_ns_op *op);

#endif
