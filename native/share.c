/* SPDX-License-Identifier: Apache-2.0 */
#include "native/share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/wire.h"

/* A buffer that the client sees, and the last reply that it is a part of. */
struct shown {
	struct lp_buf *buf;
	uint64_t reply_nr;
};

struct lpi_share {
	struct lp_bufs *bufs;
	uint8_t *region;
	uint64_t bytes;
	int fd; /* for the client; -1: it was sent */
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
	uint64_t reply_cnt; /* shown so far */
	uint64_t released_cnt;
	/* A ring, with a place for each buffer there can be: the store takes none of 4 KiB. */
	uint64_t first;
	uint64_t next;
	uint32_t shown_max;
	struct shown shown[];
};

int lpi_share_new(uint64_t bytes, struct lpi_share **ret_share)
{
	uint64_t rounded = lp_align_down(bytes, LP_BUF_LARGE);
	uint32_t shown_max = (uint32_t)(rounded / LP_BUF_MEDIUM);
	LP_ASSERT(rounded > 0 && rounded <= LP_WIRE_SHARE_MAX);
	struct lpi_share *share = calloc(1, sizeof(*share) + shown_max * sizeof(share->shown[0]));
	if (share == NULL)
		return -ENOMEM;
	int err = lp_bufs_new_shared(rounded, &share->bufs, &share->fd);
	if (err < 0) {
		free(share);
		return err;
	}
	share->region = lp_bufs_region(share->bufs, &share->bytes);
	share->shown_max = shown_max;
	*ret_share = share;
	return 0;
}

static struct shown *at(struct lpi_share *share, uint64_t nr)
{
	return &share->shown[nr % share->shown_max];
}

void lpi_share_free(struct lpi_share *share)
{
	if (share == NULL)
		return;
	while (share->first < share->next)
		lp_buf_put(at(share, share->first++)->buf);
	if (share->fd >= 0)
		(void)close(share->fd);
	lp_bufs_free(share->bufs);
	free(share);
}

uint64_t lpi_share_bytes(const struct lpi_share *share)
{
	return share->bytes;
}

struct lp_bufs *lpi_share_bufs(struct lpi_share *share)
{
	return share->bufs;
}

bool lpi_share_show(struct lpi_share *share, const struct lp_seg *segs, uint32_t seg_cnt,
		    struct lp_writer *writer)
{
	if (seg_cnt == 0 || seg_cnt > LP_WIRE_PARTS_MAX)
		return false;
	for (uint32_t i = 0; i < seg_cnt; i++) {
		if (segs[i].buf->home != share->bufs || segs[i].buf->bytes < LP_BUF_MEDIUM)
			return false;
	}
	share->reply_cnt++;
	for (uint32_t i = 0; i < seg_cnt; i++) {
		const struct lp_seg *seg = &segs[i];
		const struct lp_wire_shared part = {
			.offset = (uint32_t)(seg->buf->data - share->region) + seg->offset,
			.bytes = seg->len};
		lp_wire_put_part(writer, lp_wire_shared, &part);
		LP_ASSERT(share->next - share->first < share->shown_max);
		*at(share, share->next++) =
			(struct shown){.buf = lp_buf_get(seg->buf), .reply_nr = share->reply_cnt};
	}
	return true;
}

int lpi_share_release(struct lpi_share *share, uint64_t reply_cnt)
{
	if (reply_cnt < share->released_cnt || reply_cnt > share->reply_cnt)
		return -EPROTO;
	share->released_cnt = reply_cnt;
	while (share->first < share->next && at(share, share->first)->reply_nr <= reply_cnt)
		lp_buf_put(at(share, share->first++)->buf);
	return 0;
}

void lpi_share_attach(struct lpi_share *share, struct msghdr *msg)
{
	if (share->fd < 0)
		return;
	memset(share->control, 0, sizeof(share->control));
	msg->msg_control = share->control;
	msg->msg_controllen = sizeof(share->control);
	struct cmsghdr *head = CMSG_FIRSTHDR(msg);
	*head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
				 .cmsg_level = SOL_SOCKET,
				 .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &share->fd, sizeof(int));
}

void lpi_share_sent(struct lpi_share *share)
{
	if (share->fd >= 0)
		(void)close(share->fd); /* from now on the client's copy keeps the memory */
	share->fd = -1;
}
