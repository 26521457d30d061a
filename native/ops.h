/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of the native protocol: the functions in their table, and their shared helpers.
 *
 * Threads: the door's.
 * Blocking, memory: none.
 */
#ifndef LP_NATIVE_OPS_H
#define LP_NATIVE_OPS_H

#include "native/opcode.h"

/* The opcode at index idx; NULL behind the last. */
const struct lpi_opcode *lpi_opcode_at(uint32_t idx);

/* --- For the functions in the table: ops_parts.c ---------------------------------------------- */

/* Reads a reference out of a fixed part, and its path, which comes next. -EINVAL, -ENAMETOOLONG. */
int lpi_read_ref(struct lpi_request *request, enum lpi_ref_kind kind, const uint8_t *bytes,
		 struct lp_reader *reader);
int lpi_read_refs(struct lpi_request *request, enum lpi_ref_kind from, enum lpi_ref_kind to,
		  const struct lp_wire_two *two, struct lp_reader *reader);
void lpi_put_attrs(struct lp_writer *writer, const struct lp_ns_found *found);
/* Replies with the attributes of the inode that was found. */
void lpi_answer_found(struct lpi_request *request, const struct lp_ns_found *found);
/* Words for the error that begin() is about to return. */
void lpi_request_why(struct lpi_request *request, const char *why);
/* The owner of a new inode: the client, or another user if the client is root: -EPERM. */
int lpi_request_who(struct lpi_request *request, uint32_t uid, uint32_t gid,
		    struct lp_ns_who *ret_who);
/* Checks an xattr: not too long (-E2BIG), and a valid list if its name is an ACL's (-EINVAL). The
 * kernel cannot read an invalid list, and would not open a directory that has one. */
int lpi_check_xattr(struct lpi_request *request, struct lp_bytes name, struct lp_bytes value);
/* Checks that the client may set or remove the xattr, and may give a new inode of this owner this
 * mode: -EPERM. */
int lpi_check_xattr_name(struct lpi_request *request, struct lp_bytes name);
int lpi_check_new_mode(struct lpi_request *request, struct lp_ns_who who, uint16_t mode);
/* Words for an error of the namespace, or "". */
const char *lpi_why_refused(const struct lpi_request *request, int err);
/* Runs a transaction, with the change of mode that it entails. */
void lpi_run_change(struct lpi_request *request);
bool lpi_is_data_change(enum lp_change_type type);
/* True if the change sets an access list, which changes the mode, too: see lpi_run_change(). */
bool lpi_sets_list(const struct lp_change *change);
enum lp_store_ack lpi_request_ack(const struct lpi_request *request);
struct lp_payload lpi_request_payload(const struct lpi_request *request);
/* The request's own operation, with the fields set that all opcodes share. */
struct lp_ns_op *lpi_request_op(struct lpi_request *request, enum lp_ns_opcode opcode);
struct lp_store_op *lpi_request_store_op(struct lpi_request *request, enum lp_store_opcode opcode);
void lpi_request_txn(struct lpi_request *request, const struct lp_change *changes,
		     uint32_t change_cnt);
/* A change that sets ctime, and mtime, to now. */
void lpi_change_times(struct lpi_request *request, struct lp_change *change, bool with_mtime);

/* ops_data.c */
int lpi_meta_get(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_get(struct lpi_request *request);
void lpi_get_pump(struct lpi_request *request);
void lpi_get_sent(struct lpi_request *request, struct lpi_piece *piece);
int lpi_meta_write(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_truncate(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_punch(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_prealloc(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_clone(struct lpi_request *request, struct lp_reader *reader);
/* The source of the clone, also after its change was moved within the list of changes. */
struct lp_ino lpi_clone_source(const struct lpi_request *request);
void lpi_run_clone(struct lpi_request *request);
void lpi_answer_written(struct lpi_request *request);
int lpi_meta_seek(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_seek(struct lpi_request *request);
int lpi_meta_compound(struct lpi_request *request, struct lp_reader *reader);

/* ops_small.c */
int lpi_meta_xattr_get(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_xattr_set(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_xattr_remove(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_xattr_list(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_omap_get(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_omap_set(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_omap_remove(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_omap_list(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_readlink(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_value(struct lpi_request *request);
void lpi_run_pairs(struct lpi_request *request);
void lpi_answer_value(struct lpi_request *request);
void lpi_answer_pairs(struct lpi_request *request);

/* ops_names.c */
int lpi_meta_stat(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_stat(struct lpi_request *request);
void lpi_answer_stat(struct lpi_request *request);
int lpi_meta_set(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_set(struct lpi_request *request);
int lpi_meta_make(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_make(struct lpi_request *request);
int lpi_meta_remove(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_link(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_link(struct lpi_request *request);
int lpi_meta_rename(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_readdir(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_items(struct lpi_request *request);
int lpi_meta_sync(struct lpi_request *request, struct lp_reader *reader);

/* ops_keys.c */
/* Reads the part that put and commit share. */
int lpi_read_put(struct lpi_request *request, const struct lp_wire_put *put,
		 struct lp_reader *reader);
int lpi_meta_put(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_put(struct lpi_request *request);
int lpi_meta_delete(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_copy(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_move(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_copy(struct lpi_request *request);
uint64_t lpi_steps_copy(const struct lpi_request *request);
int lpi_meta_list(struct lpi_request *request, struct lp_reader *reader);

/* ops_session.c */
int lpi_meta_hello(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_hello(struct lpi_request *request);
void lpi_undo_hello(struct lpi_request *request);
int lpi_meta_ping(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_ping(struct lpi_request *request);
int lpi_meta_share(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_share(struct lpi_request *request);
int lpi_meta_open(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_open(struct lpi_request *request);
void lpi_undo_open(struct lpi_request *request);
/* Makes a record of the inode to be opened, in request->open: -EMFILE. */
int lpi_reserve_open(struct lpi_request *request);
int lpi_meta_close(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_close(struct lpi_request *request);
int lpi_meta_upload(struct lpi_request *request, struct lp_reader *reader);
void lpi_answer_upload(struct lpi_request *request);
int lpi_meta_commit(struct lpi_request *request, struct lp_reader *reader);
/* The number of the upload, which has no name yet. */
struct lp_ino lpi_commit_source(const struct lpi_request *request);
void lpi_answer_commit(struct lpi_request *request);
void lpi_undo_commit(struct lpi_request *request);
int lpi_meta_admin(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_admin_text(struct lpi_request *request, struct lp_reader *reader);
int lpi_meta_explain(struct lpi_request *request, struct lp_reader *reader);
void lpi_run_admin(struct lpi_request *request);
void lpi_admin_sent(struct lpi_request *request, struct lpi_piece *piece);

#endif
