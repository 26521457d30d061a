/* SPDX-License-Identifier: Apache-2.0 */
/* An act: one operation of one client, as it was recorded, and the files that histories are kept
 * in.
 *
 * Objects are few, so that clients meet. They are in groups of NAMES names; no act touches two
 * groups. An object's data are cells, all of one size in a group. What is written is a value of 60
 * bits that nobody else writes, and of it the cell at index k of what was written has the value
 * (value << 4) + k; a hole's is 0. So whoever reads knows which acts he sees.
 *
 * Threads: these are plain data. Errors: of files, as they come.
 */
#ifndef LP_TESTS_LINEAR_ACT_H
#define LP_TESTS_LINEAR_ACT_H

#include <stdio.h>

#include "base/compiler.h"

#define LPI_GROUPS  3u
#define LPI_NAMES   3u
#define LPI_CELLS   16u /* of an object, at most */
#define LPI_CLIENTS 8u  /* each may have one object open in a group at a time */

#define LPI_TORN  UINT64_MAX /* a cell of which a read through the mount saw two values */
#define LPI_NEVER UINT64_MAX /* the time at which an act of unknown outcome returned */

enum lpi_act_kind {
	LPI_PUT,      /* name, count, value, condition -> version */
	LPI_READ,     /* first, count -> got, cells, version */
	LPI_STAT,     /* -> got: its size; nlink, version */
	LPI_REMOVE,   /* name */
	LPI_RENAME,   /* name, to_name, condition: LPI_IF_ABSENT */
	LPI_EXCHANGE, /* name, to_name */
	LPI_LINK,     /* of a name or handle, to_name */
	/* The first moments of acts that have several; for the judge only. */
	LPI_TAKE,      /* what a copy is of */
	LPI_FIND,      /* name: the object that an act by name is on */
	LPI_COPY,      /* name, to_name */
	LPI_WRITE,     /* first, count, value -> version */
	LPI_APPEND,    /* count, value -> first, if it was told (LPI_TOLD) */
	LPI_TRUNCATE,  /* count */
	LPI_XATTR_SET, /* value */
	LPI_XATTR_GET, /* -> value; 0 if there is none */
	LPI_OPEN,      /* name -> the client's handle */
	LPI_CREATE,    /* name, condition: LPI_IF_ABSENT -> the client's handle */
	LPI_CLOSE,
	LPI_SYNC,  /* what was done before is durable */
	LPI_START, /* the daemon was started, after its end at invoke_ns, and was ready at return_ns
		    */
	LPI_KINDS
};

enum lpi_act_flag {
	LPI_UNKNOWN = 0x1,   /* it may have happened, or not, or happen yet */
	LPI_DURABLE = 0x2,   /* what it did, or saw, a crash does not take back */
	LPI_BY_HANDLE = 0x4, /* on the object that its client has open */
	LPI_MOUNT = 0x8,
	LPI_CACHED = 0x10, /* it may have been answered by the kernel's memory */
	LPI_SHARP = 0x20,  /* only seen beside such ones: a look through a socket */
	LPI_TOLD = 0x40,   /* append: first is known */
	LPI_LOSSY = 0x80 /* start, the first of a history: acts that are not durable may be lost */
};

enum lpi_act_if { LPI_IF_ANY, LPI_IF_ABSENT, LPI_IF_EXISTS, LPI_IF_VERSION };

struct lpi_act {
	uint64_t invoke_ns; /* CLOCK_MONOTONIC */
	uint64_t return_ns;
	uint64_t value;
	uint64_t version;    /* of the object, when it returned; 0: not told */
	uint64_t if_version; /* with LPI_IF_VERSION */
	int32_t status;      /* 0, or a negative error number */
	uint8_t kind;
	uint8_t flags;
	uint8_t group;
	uint8_t client;
	uint8_t name;
	uint8_t to_name;
	uint8_t condition;
	uint8_t first;    /* cell */
	uint8_t count;    /* of cells */
	uint8_t got;      /* cells */
	uint8_t nlink;    /* 0: not told */
	uint8_t is_found; /* 1: on the object that its LPI_FIND found */
	uint64_t cells[LPI_CELLS];
};

/* The value of the cell that is the k-th of what an act wrote. */
static inline uint64_t lpi_act_cell(const struct lpi_act *act, unsigned k)
{
	return (act->value << 4) + k;
}

/* True for those that change nothing, whatever becomes of them. Opening is a look. */
static inline bool lpi_act_is_look(const struct lpi_act *act)
{
	return act->kind == LPI_READ || act->kind == LPI_STAT || act->kind == LPI_XATTR_GET ||
	       act->kind == LPI_OPEN;
}

/* A line that says all of it; times are from base_ns on. */
void lpi_act_print(const struct lpi_act *act, uint64_t base_ns, FILE *file);

/* Acts, in memory that grows. */
struct lpi_acts {
	struct lpi_act *list;
	size_t cnt;
	size_t room;
};

/* -ENOMEM. */
int lpi_acts_add(struct lpi_acts *acts, const struct lpi_act *act) LP_MUST_CHECK;
/* Adds those of the file. -EUCLEAN: not such a file; or as open and read say. */
int lpi_acts_load(struct lpi_acts *acts, const char *path) LP_MUST_CHECK;
int lpi_acts_save(const struct lpi_acts *acts, const char *path) LP_MUST_CHECK;
void lpi_acts_fini(struct lpi_acts *acts);

#endif
