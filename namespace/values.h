/* SPDX-License-Identifier: Apache-2.0 */
/* Check of values that come from a door: owners and times that no file can have.
 *
 * Threads: any.
 * Blocking, memory: none.
 *
 * This is the one place where a request is refused for a value that another door cannot live with
 * (store/attrs.h). Every request of either door passes here. Times of the mount's kernel are made
 * to fit before. Names and paths are checked where they are parsed (rule N6). The operation checks
 * modes, types and sizes, because it knows what they belong to.
 */
#ifndef LP_NAMESPACE_VALUES_H
#define LP_NAMESPACE_VALUES_H

#include "namespace/ns.h"

/* The name of the first such value, or NULL. An LP_NS_STORE is not checked here: its changes are
 * checked one by one. */
const char *lpi_values_fault(const struct lp_ns_op *op);

#endif
