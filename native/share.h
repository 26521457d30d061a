/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of a connection: data of large reads, which its client maps and reads.
 *
 * Threads: the door's.
 * Blocking: none.
 * Memory: a region of buffers, allocated when a client asks for it.
 * Errors: lpi_share_new() lists them; without a region data goes through the socket.
 *
 * The store reads large data straight into the region, so it is not copied into a socket and out of
 * it again. Only objects of this connection are read into it. Data that has been shown to the
 * client keeps its buffers until the client releases it, in order. If it does not, the region is
 * full, and reads go through the socket. The client can neither write there nor free anything. When
 * the connection ends the region is emptied, even if the client still maps it.
 */
#ifndef LP_NATIVE_SHARE_H
#define LP_NATIVE_SHARE_H

#include <sys/socket.h>

#include "base/cursor.h"
#include "base/memory/buf.h"

struct lpi_share;

/* -ENOMEM, -EMFILE, or the error of making a file in memory. */
int lpi_share_new(uint64_t bytes, struct lpi_share **ret_share) LP_MUST_CHECK;
/* Only after all reads into it have been given back. Accepts NULL. */
void lpi_share_free(struct lpi_share *share);
uint64_t lpi_share_bytes(const struct lpi_share *share);
/* The buffers that the store reads data into. */
struct lp_bufs *lpi_share_bufs(struct lpi_share *share);
/* Shows the data of one reply to the client. True if all of it is in the region: its parts are
 * appended to the meta, and stay until they are released. */
bool lpi_share_show(struct lpi_share *share, const struct lp_seg *segs, uint32_t seg_cnt,
		    struct lp_writer *writer);
/* The client has released so many replies in all. -EPROTO. */
int lpi_share_release(struct lpi_share *share, uint64_t reply_cnt) LP_MUST_CHECK;

/* Attaches the descriptor to the message that is about to be sent, if it was not sent yet; */
void lpi_share_attach(struct lpi_share *share, struct msghdr *msg);
/* and that message was sent, at least in part. */
void lpi_share_sent(struct lpi_share *share);

#endif
