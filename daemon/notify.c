/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool lpi_notify(const char *path, const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = path == NULL ? 0 : strlen(path);
	if (len < 2 || len >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
		return false;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	socklen_t address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
			      (const struct sockaddr *)&address, address_len);
	(void)close(fd); /* a datagram is sent or not by now */
	return sent >= 0;
}
