/* SPDX-License-Identifier: Apache-2.0 */
/* A client of one of the doors: draws acts, does them, records them, until there were enough or the
 * daemon is gone.
 *
 * The groups differ in what is done to them, so that each way to look at them can be judged
 * exactly: g0 is where names move, are linked and exchanged through sockets; g1 where they move
 * through the mount, for the kernel looks up two names before it asks for a rename, and the one
 * must not come to be the other meanwhile; g2 is one object that is always there, and what the
 * mount does to it need not be durable at once.
 *
 * Threads: each client is one. Blocking: yes.
 */
#ifndef LP_TESTS_LINEAR_CLIENT_H
#define LP_TESTS_LINEAR_CLIENT_H

#include <stdatomic.h>

#include "base/prng.h"
#include "tests/linear/act.h"

#define LPI_MOVED_BY_SOCKET 0u /* groups */
#define LPI_MOVED_BY_MOUNT  1u
#define LPI_ALWAYS_THERE    2u

#define LPI_CELL_BYTES_MAX 65536u
#define LPI_NO_GROUP       UINT8_MAX

struct lpi_plan {
	const char *address;
	const char *dir; /* where it is mounted */
	uint64_t seed;
	uint64_t life;     /* how often the daemon was started before */
	bool is_cached;    /* the kernel remembers what it was told */
	bool is_synced;    /* the mount has the option sync */
	uint32_t acts_max; /* of each client */
	uint32_t cell_bytes[LPI_GROUPS];
	_Atomic bool has_ended; /* for who works until the others have */
};

struct lapis;
struct lapis_file;

struct lpi_client {
	const struct lpi_plan *plan;
	uint32_t idx;
	bool is_mounts;
	bool is_lost;     /* the daemon is gone */
	uint64_t lost_ns; /* when that was noticed; 0: it was not */
	bool is_append;   /* how its handle was opened (mount) */
	bool maps;        /* the next read, where the kernel remembers (mount) */
	uint8_t handle_group;
	uint8_t unsynced; /* changes that it has not made durable */
	struct lp_prng prng;
	uint64_t serial;
	struct lpi_acts acts;
	uint8_t *buf; /* for all cells of an object, on a page */
	struct lapis *lapis;
	struct lapis_file *file;
	int fd;
	char trouble[256]; /* what should never be, or empty */
};

/* Connects. -ENOMEM, or what the daemon or its absence says. */
int lpi_client_init(struct lpi_client *client, const struct lpi_plan *plan,
		    uint32_t idx) LP_MUST_CHECK;
void lpi_client_fini(struct lpi_client *client);
/* All acts. */
void lpi_client_run(struct lpi_client *client);
/* Does this one, and records it, unless it has certainly not happened. */
void lpi_client_do(struct lpi_client *client, struct lpi_act *act);
/* A value that nobody else writes. */
uint64_t lpi_client_value(struct lpi_client *client);
void lpi_client_path(const char *dir, unsigned group, unsigned name, char *ret_path, size_t len);
LP_PRINTF(2, 3) void lpi_client_fail(struct lpi_client *client, const char *format, ...);

/* The doors: do what the act says, and put into it what came of it. False: it has certainly not
 * happened. A daemon that is gone makes it LPI_UNKNOWN, and the client lost. */
bool lpi_native_do(struct lpi_client *client, struct lpi_act *act);
bool lpi_mounted_do(struct lpi_client *client, struct lpi_act *act);

/* The cells of an act's values, in the client's buffer; and those that were read, from there:
 * -EBADMSG if they are not whole cells. can_be_torn: of a cell with two values that is said
 * (LPI_TORN), and the judge finds out whether it may be. */
void lpi_cells_fill(const struct lpi_client *client, const struct lpi_act *act);
int lpi_cells_take(const struct lpi_client *client, size_t bytes, bool can_be_torn,
		   struct lpi_act *act) LP_MUST_CHECK;

#endif
