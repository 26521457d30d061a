/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and changers of one file at once, and the model of what a reader may see.
 *
 * The file has LPI_BLOCKS blocks. Each block has versions, counted from 0. What a version is like
 * follows from its number and the changer: data that says block and version in each of its words,
 * zeros, or nothing at all (the file ends before it). A changer says which version it begins before
 * it asks for it, and which is acknowledged when the call has returned. Both are in shared memory.
 * A block has one changer, so its versions have an order.
 *
 * A reader notes the acknowledged version before it begins, and the begun one after it has ended.
 * What it has seen must be one of these or between them: older is stale, newer is wrong. Words of
 * one block that are of several versions are torn. That is told apart, for POSIX file systems
 * differ there.
 *
 * Each reader and each changer is a process. Nothing here is for threads, and all calls may block.
 * What fails in a way that nobody expects ends the process with a line on standard error.
 */
#ifndef LP_TESTS_STRANGERS_RACE_H
#define LP_TESTS_STRANGERS_RACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

struct lapis_file;

#define LPI_BLOCKS      64u
#define LPI_BLOCK_BYTES 4096u
#define LPI_RUN_MAX     4u /* blocks that are read or changed at once */
#define LPI_FILE_BYTES  ((size_t)LPI_BLOCKS * LPI_BLOCK_BYTES)
#define LPI_EXAMPLES    3u

/* What a version is like. */
enum lpi_state { LPI_DATA, LPI_ZEROS, LPI_GONE };

/* What readers have found, summed over all of them. */
struct lpi_found {
	_Atomic uint64_t reads; /* of blocks */
	_Atomic uint64_t stale;
	_Atomic uint64_t torn;
	_Atomic uint64_t wrong;   /* of another block, or newer than anything that was begun */
	_Atomic uint64_t at_rest; /* when nobody changes anything any more */
};

/* In memory that all processes have. */
struct lpi_race {
	_Atomic uint64_t begun[LPI_BLOCKS];
	_Atomic uint64_t acked[LPI_BLOCKS];
	_Atomic uint64_t changes;
	_Atomic bool is_over;
	_Atomic int unsupported; /* the errno of a call that this file system does not have */
	struct lpi_found found;
	struct lpi_found beside; /* what the bystander finds, who reads by pread */
};

struct lpi_changer;

/* One process: a reader or a changer. */
struct lpi_actor {
	struct lpi_race *race;
	const struct lpi_changer *changer; /* of this race */
	const char *path;
	const char *address; /* of the socket, or NULL */
	const char *key;     /* of the file, at the socket */
	struct lp_prng prng;
	unsigned first_block; /* a changer's own blocks */
	unsigned blocks_cnt;
	bool is_synced;  /* a buffered change counts when it was synced, for who reads at the other
			    door */
	bool is_at_rest; /* nobody changes anything any more */
	int fd;          /* as it was opened for it */
	int other_fd;    /* what a copy is from, or to; or a pipe's end to write */
	int pipe_fd;     /* the end to read */
	unsigned char *map; /* of the file */
	unsigned char *buf; /* aligned, of LPI_RUN_MAX blocks */
	void *ring;         /* what an engine needs */
	struct lapis_file *file;
};

/* How a file is read: `read` gives how many bytes it got from block on, into buf; or -errno. */
struct lpi_reader {
	const char *name;
	bool is_socket;
	int flags; /* of open */
	void (*start)(struct lpi_actor *actor);
	int64_t (*read)(struct lpi_actor *actor, unsigned block, unsigned cnt);
};

/* How a file is changed: `change` makes one change, with all its versions. */
struct lpi_changer {
	const char *name;
	bool is_socket;
	bool is_one; /* there is one such changer, for it changes the end of the file */
	/* Its end may be seen late through the mount, as docs/reliability.md says: who sees the end
	 * of the file is not judged. */
	bool is_end_late;
	int flags;
	unsigned period; /* version N is like states[N % period] */
	enum lpi_state states[3];
	void (*start)(struct lpi_actor *actor);
	void (*change)(struct lpi_actor *actor);
};

/* The tables end with a name of NULL. */
extern const struct lpi_reader lpi_readers[];
extern const struct lpi_changer lpi_changers[];

/* Ends the process, with what failed and errno. */
_Noreturn void lpi_race_fail(const struct lpi_actor *actor, const char *what, int err);
/* Ends the process: the file system does not have the call. */
_Noreturn void lpi_race_unsupported(const struct lpi_actor *actor, int err);

/* Opens the file, makes the buffer, and a mapping where `has_map`. */
void lpi_race_open(struct lpi_actor *actor, int flags, bool has_map);
/* Opens the file at the socket. */
void lpi_race_open_socket(struct lpi_actor *actor);
/* libaio and io_uring, each with LPI_RUN_MAX requests at most. */
void lpi_race_start_aio(struct lpi_actor *actor);
void lpi_race_start_ring(struct lpi_actor *actor);

/* The changer's side: the version that follows is begun for each of these blocks; it is
 * acknowledged. */
void lpi_race_begin(const struct lpi_actor *actor, unsigned block, unsigned cnt);
void lpi_race_ack(const struct lpi_actor *actor, unsigned block, unsigned cnt);
/* Fills buf with the data of the versions that are begun. */
void lpi_race_fill(const struct lpi_actor *actor, unsigned char *buf, unsigned block, unsigned cnt);

/* The reader's side, around each read. */
struct lpi_window {
	unsigned block;
	unsigned cnt;
	uint64_t acked[LPI_RUN_MAX];
};

void lpi_race_look(const struct lpi_actor *actor, unsigned block, unsigned cnt,
		   struct lpi_window *ret_window);
/* Judges what was read: got bytes from the window's block on. True: a block was stale. */
bool lpi_race_judge(const struct lpi_actor *actor, const struct lpi_window *window, int64_t got,
		    struct lpi_found *found);

#endif
