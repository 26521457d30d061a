/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait, for the functions that are made of them.
 *
 * Threads: any when the handle has one of its own, else the one that runs it. Blocking: all.
 */
#ifndef LP_CLIENT_CALL_H
#define LP_CLIENT_CALL_H

#include <pthread.h>

#include "base/error.h"
#include "client/lapis.h"

struct lpi_link;

struct lpi_await {
	struct lapis_result *result; /* its text and value are the caller's: lapis_result_fini() */
	/* A connection that it must be made on, or NULL; then the one that answered. */
	struct lpi_link *conn;
	uint64_t generation;
	/* Of who waits. */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool has_ended;
	/* Nobody waits any more: called instead, with the call, which is its own from then on. */
	void (*left)(struct lpi_await *call);
	size_t last_pos; /* of a list's result: where its last item begins */
	uint64_t id;
};

/* lapis.c */
/* call NULL, or whose connection it is for. */
int lpi_submit(struct lapis *lapis, const struct lapis_request *request,
	       const struct lpi_await *call, uint64_t *ret_id) LP_MUST_CHECK;

/* call.c */
/* The same in parts, for who does something else meanwhile. One that began is waited for or left,
 * once; its result is cleared and its connection NULL. Errors of the first are not in
 * lapis_error_text(). */
int lpi_await_start(struct lapis *lapis, const struct lapis_request *request,
		    struct lpi_await *call) LP_MUST_CHECK;
int lpi_await_end(struct lapis *lapis, struct lpi_await *call) LP_MUST_CHECK;
/* Ends it early. left() comes, now or later, from any thread; the result is its to give back. */
void lpi_await_leave(struct lapis *lapis, struct lpi_await *call,
		     void (*left)(struct lpi_await *call));

/* The status of the result; what went wrong is in lapis_error_text(). */
int lpi_await(struct lapis *lapis, const struct lapis_request *request,
	      struct lpi_await *call) LP_MUST_CHECK;
/* For those who only want the numbers; ret_result may be NULL. */
int lpi_ask(struct lapis *lapis, const struct lapis_request *request,
	    struct lapis_result *ret_result) LP_MUST_CHECK;

#endif
