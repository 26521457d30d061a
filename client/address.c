/* SPDX-License-Identifier: Apache-2.0 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/handle.h"

#define DEFAULT_ADDRESS "unix:/run/lapis/lapis.sock"

static int parse_unix(struct lapis *lapis, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&lapis->addresses[0].storage;
	size_t len = strlen(path);
	if (len == 0)
		return -EINVAL;
	if (len >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, len + 1);
	lapis->addresses[0].len = sizeof(*un);
	lapis->address_cnt = 1;
	return 0;
}

/* All that the name has, in the order of getaddrinfo(): a daemon may listen on one of them only, as
 * on 127.0.0.1 where localhost is ::1 first. */
static void take_addresses(struct lapis *lapis, const struct addrinfo *found)
{
	for (; found != NULL && lapis->address_cnt < LPI_ADDRESSES_MAX; found = found->ai_next) {
		struct lpi_address *address = &lapis->addresses[lapis->address_cnt++];
		memcpy(&address->storage, found->ai_addr, found->ai_addrlen);
		address->len = found->ai_addrlen;
	}
}

/* HOST:PORT, where HOST may be an IPv6 address in brackets. */
static int parse_tcp(struct lapis *lapis, const char *text)
{
	char host[256];
	const char *colon = strrchr(text, ':');
	if (colon == NULL || colon == text || colon[1] == '\0')
		return -EINVAL;
	size_t len = (size_t)(colon - text);
	if (text[0] == '[' && colon[-1] == ']') {
		text++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -EHOSTUNREACH;
	take_addresses(lapis, found);
	freeaddrinfo(found);
	return 0;
}

int lpi_address_parse(struct lapis *lapis, const char *text)
{
	if (text == NULL)
		/* Read once, when a handle is made. NOLINTNEXTLINE(concurrency-mt-unsafe) */
		text = getenv("LAPIS_ADDRESS");
	if (text == NULL || text[0] == '\0')
		text = DEFAULT_ADDRESS;
	(void)snprintf(lapis->address_text, sizeof(lapis->address_text), "%s", text);
	if (strncmp(text, "unix:", 5) == 0)
		return parse_unix(lapis, text + 5);
	if (strncmp(text, "tcp:", 4) == 0)
		return parse_tcp(lapis, text + 4);
	return -EINVAL;
}
