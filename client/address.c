/* SPDX-License-Identifier: Apache-2.0 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/impl.h"

#define DEFAULT_ADDRESS "unix:/run/lapis/lapis.sock"

static int parse_unix(struct lapis *lapis, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&lapis->address;
	size_t len = strlen(path);
	if (len == 0)
		return -EINVAL;
	if (len >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, len + 1);
	lapis->address_len = sizeof(*un);
	return 0;
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
	memcpy(&lapis->address, found->ai_addr, found->ai_addrlen);
	lapis->address_len = found->ai_addrlen;
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
