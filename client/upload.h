/* SPDX-License-Identifier: Apache-2.0 */
/* A put that is made of others: of more than fits into a message, or of a source.
 *
 * Threads: all of this belongs to the thread that runs the handle (who is in lapis_turn(), one at a
 * time), but for new and free, which are also its maker's. Blocking: none, but for sources.
 */
#ifndef LP_CLIENT_UPLOAD_H
#define LP_CLIENT_UPLOAD_H

#include "client/op.h"

#define LPI_UPLOAD_WINDOW 8u /* pieces of one put under way */
/* So long sources wait for what is half sent. */
#define LPI_HUNGER_MAX (100 * LP_NS_PER_MS)

enum lpi_upload_phase {
	LPI_UPLOAD_NEW,
	LPI_UPLOAD_OPENING,
	LPI_UPLOAD_WRITING,
	LPI_UPLOAD_COMMITTING,
};

struct lpi_upload {
	enum lpi_upload_phase phase;
	char *path;
	uint64_t dir_ino; /* the path begins there */
	const uint8_t *data;
	uint64_t data_bytes;
	lapis_source_fn *source; /* instead of data */
	void *source_arg;
	lapis_hole_fn *hole; /* NULL: there are none */
	uint64_t gap_bytes;  /* of the hole behind the piece that was read last */
	bool is_asked;       /* whether there is a hole before what the source gives next */
	bool ends_in_hole;   /* so far: nothing was written behind it */
	uint8_t *first;      /* what was read of it before it was known to be long */
	bool at_end;
	uint64_t pos;
	uint32_t under_way;
	uint32_t restarts;
	uint64_t ino; /* 0: none yet */
	struct lpi_link *pin;
	uint64_t pin_generation;
	int status; /* negative: it ends when nothing is under way any more */
	char text[LPI_TEXT_MAX];
};

/* upload_alloc.c */
/* For op->upload, which frees it also after an error. -ENOMEM. */
int lpi_upload_new(struct lpi_op *op, const struct lapis_request *request) LP_MUST_CHECK;
void lpi_upload_free(struct lpi_upload *upload);

/* upload.c */
void lpi_upload_start(struct lpi_op *op);
/* Ends any operation, wherever it is: an upload with its parts. The text may not be op->text. */
void lpi_end_early(struct lpi_op *op, int status, const char *text);
/* A piece of each source that may be asked now, which may take as long as it likes. True when there
 * was any. */
bool lpi_uploads_feed(struct lapis *lapis);
/* After how much of the handle's time some may; UINT64_MAX: there is none. */
uint64_t lpi_uploads_wait_ns(const struct lapis *lapis);

#endif
