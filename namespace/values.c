/* SPDX-License-Identifier: Apache-2.0 */
/* op->who owns the inodes that an operation makes. Other operations do not use it: a mount's kernel
 * need not name the user then, and passes 0xffffffff. */
#include "namespace/values.h"

#include "store/attrs.h"

static const char *owner_fault(const struct lp_ns_op *op)
{
	const struct lp_attrs attrs = {.uid = op->who.uid, .gid = op->who.gid};
	return lp_attrs_fault(&attrs, LP_ATTR_UID | LP_ATTR_GID);
}

static const char *put_fault(const struct lp_ns_op *op)
{
	const struct lp_attrs attrs = {.mtime_ns = op->put.mtime_ns};
	const char *fault = lp_attrs_fault(&attrs, LP_ATTR_MTIME);
	return fault != NULL ? fault : owner_fault(op);
}

const char *lpi_values_fault(const struct lp_ns_op *op)
{
	switch (op->opcode) {
	case LP_NS_SET:
		return lp_attrs_fault(&op->set.attrs, op->set.mask);
	case LP_NS_PUT:
	case LP_NS_COMMIT:
		return put_fault(op);
	case LP_NS_MAKE:
	case LP_NS_UPLOAD:
	case LP_NS_COPY:
	case LP_NS_MOVE:
		return owner_fault(op);
	case LP_NS_STORE:
	case LP_NS_STAT:
	case LP_NS_OPEN:
	case LP_NS_CLOSE:
	case LP_NS_SYNC:
	case LP_NS_FORGET:
	case LP_NS_LOOKUP:
	case LP_NS_REMOVE:
	case LP_NS_LINK:
	case LP_NS_RENAME:
	case LP_NS_READDIR:
	case LP_NS_WALK:
	case LP_NS_DELETE:
	case LP_NS_LIST:
	case LP_NS_OPCODE_CNT:
		break;
	}
	return NULL;
}
