/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics over HTTP/1.1 for Prometheus, and nothing else of HTTP.
 *
 * Threads: the control thread.
 * Blocking: new and free.
 * Memory: allocated by new, and for answers.
 * Limits: LPI_HTTP_CONNS connections at a time. Each has a buffer of LPI_HTTP_HEAD_MAX for its
 *   request and LPI_HTTP_TIMEOUT_NS to send it and take the answer.
 *
 * Each connection gets one answer and is closed.
 */
#ifndef LP_DAEMON_HTTP_H
#define LP_DAEMON_HTTP_H

#include "daemon/config/why.h"

#define LPI_HTTP_CONNS      8u
#define LPI_HTTP_HEAD_MAX   4096u
#define LPI_HTTP_TIMEOUT_NS (10 * LP_NS_PER_S)

struct lp_service;
struct lpi_http;

/* The address is "tcp:HOST:PORT", of this machine. */
int lpi_http_new(struct lp_service *service, const char *address, struct lpi_http **ret_http,
		 char *why) LP_MUST_CHECK;
int lpi_http_start(struct lpi_http *http) LP_MUST_CHECK;
/* Ends all connections; idle some turns later. */
void lpi_http_stop(struct lpi_http *http);
bool lpi_http_is_idle(const struct lpi_http *http);
/* Accepts NULL. */
void lpi_http_free(struct lpi_http *http);

#endif
