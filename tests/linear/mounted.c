/* SPDX-License-Identifier: Apache-2.0 */
/* Acts through the mount, by system calls. Data goes by O_DIRECT, so that it is the daemon that
 * answers, but where the kernel's memory is to be judged, and a cell lies within a page. There each
 * second read is one of a mapping, which asks the daemon only for pages that it has not. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "tests/linear/client.h"

#define XATTR          "user.value"
#define PAGE_BYTES     4096u
#define PATH_MAX_BYTES 512u

static int result_of(long result)
{
	return result < 0 ? -errno : 0;
}

/* What the kernel refuses by itself, and not the daemon (README, What is relaxed), is asked again:
 * nothing was done. */
#define TRIES_MAX 1000u

static bool is_direct_in(const struct lpi_client *client, unsigned group)
{
	return !client->plan->is_cached || PAGE_BYTES % client->plan->cell_bytes[group] != 0;
}

static int do_open(struct lpi_client *client, const struct lpi_act *act)
{
	char path[PATH_MAX_BYTES];
	bool is_direct = is_direct_in(client, act->group);
	int flags = O_RDWR | O_CLOEXEC | (is_direct ? O_DIRECT : 0);
	if (act->kind == LPI_CREATE)
		flags |= O_CREAT | (act->condition == LPI_IF_ABSENT ? O_EXCL : 0);
	lpi_client_path(client->plan->dir, act->group, act->name, path, sizeof(path));
	for (uint32_t i = 0; i < TRIES_MAX; i++) {
		client->fd = open(path, flags, 0644);
		if (client->fd >= 0 || errno != ESTALE || act->kind != LPI_CREATE)
			break;
	}
	return client->fd < 0 ? -errno : 0;
}

/* A copy is of one version when two of them are equal: in the middle of one the page may be
 * dropped. */
#define COPIES_MAX 1000u

static _Thread_local sigjmp_buf no_page;

/* The thread's own: it has touched what is not there. */
static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(no_page, 1);
}

static bool copy_twice(const uint8_t *from, uint8_t *to, size_t bytes)
{
	if (sigsetjmp(no_page, 1) != 0)
		return false;
	for (uint32_t i = 0; i < COPIES_MAX; i++) {
		memcpy(to, from, bytes);
		/* The compiler does not know that the page changes. */
		__asm__ volatile("" : : : "memory");
		if (memcmp(to, from, bytes) == 0)
			return true;
	}
	return false;
}

/* -EAGAIN: the mapping does not tell, as at the end, or without a daemon. */
static ssize_t read_mapped(struct lpi_client *client, size_t bytes, size_t offset)
{
	const struct sigaction action = {.sa_handler = on_bus};
	struct stat st;
	size_t in_page = offset % PAGE_BYTES;
	(void)sigaction(SIGBUS, &action, NULL); /* the same each time */
	if (fstat(client->fd, &st) < 0 || (size_t)st.st_size < offset + bytes)
		return -EAGAIN;
	uint8_t *map = mmap(NULL, in_page + bytes, PROT_READ, MAP_SHARED, client->fd,
			    (off_t)(offset - in_page));
	if (map == MAP_FAILED)
		return -EAGAIN;
	bool is_read = copy_twice(map + in_page, client->buf, bytes);
	(void)munmap(map, in_page + bytes); /* it was ours */
	return is_read ? (ssize_t)bytes : -EAGAIN;
}

/* Mappings of whole cells, one after the other with reads. */
static ssize_t read_cells(struct lpi_client *client, const struct lpi_act *act)
{
	size_t cell_bytes = client->plan->cell_bytes[act->group];
	size_t bytes = act->count * cell_bytes;
	size_t offset = act->first * cell_bytes;
	ssize_t got = -EAGAIN;
	client->maps = !client->maps;
	if (client->maps && act->count == 1 && !is_direct_in(client, act->group))
		got = read_mapped(client, bytes, offset);
	return got >= 0 ? got : pread(client->fd, client->buf, bytes, (off_t)offset);
}

static int do_read(struct lpi_client *client, struct lpi_act *act)
{
	size_t bytes = client->plan->cell_bytes[act->group];
	ssize_t got = read_cells(client, act);
	if (got < 0)
		return -errno;
	/* The kernel goes on by pages where it came to an end that is no more: what it gives then
	 * may end with one of them. The cell that this is of has not been read. */
	if ((size_t)got % bytes != 0 && ((size_t)got + act->first * bytes) % PAGE_BYTES == 0)
		got -= (ssize_t)((size_t)got % bytes);
	if (lpi_cells_take(client, (size_t)got, client->plan->is_cached, act) < 0)
		lpi_client_fail(client, "a read of group %u through the mount: torn data",
				act->group);
	return 0;
}

static int do_write(struct lpi_client *client, const struct lpi_act *act)
{
	size_t bytes = client->plan->cell_bytes[act->group];
	lpi_cells_fill(client, act);
	ssize_t done =
		pwrite(client->fd, client->buf, act->count * bytes, (off_t)(act->first * bytes));
	if (done >= 0 && (size_t)done != act->count * bytes)
		lpi_client_fail(client, "a short write through the mount: %zd bytes", done);
	return result_of(done);
}

static int do_stat(struct lpi_client *client, struct lpi_act *act)
{
	struct stat st;
	uint64_t bytes = client->plan->cell_bytes[act->group];
	if (fstat(client->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size % bytes != 0)
		lpi_client_fail(client, "a size that nobody made, through the mount");
	act->got = (uint8_t)((uint64_t)st.st_size / bytes);
	act->nlink = (uint8_t)st.st_nlink;
	return 0;
}

static int do_xattr_get(struct lpi_client *client, struct lpi_act *act)
{
	ssize_t got = fgetxattr(client->fd, XATTR, &act->value, sizeof(act->value));
	if (got >= 0 && got != sizeof(act->value))
		lpi_client_fail(client, "an xattr that nobody set, through the mount");
	return result_of(got);
}

/* Whether the kernel was wrong to think that it has no name; by now it has looked. */
static bool has_name(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static int do_link(int fd, const char *to_path)
{
	int r = 0;
	for (uint32_t i = 0; i < TRIES_MAX; i++) {
		r = result_of(linkat(fd, "", AT_FDCWD, to_path, AT_EMPTY_PATH));
		if (r != -ENOENT || !has_name(fd))
			break;
	}
	return r;
}

static int do_move(const struct lpi_client *client, const struct lpi_act *act)
{
	char path[PATH_MAX_BYTES];
	char to_path[PATH_MAX_BYTES];
	unsigned flags = act->condition == LPI_IF_ABSENT ? RENAME_NOREPLACE : 0;
	lpi_client_path(client->plan->dir, act->group, act->name, path, sizeof(path));
	lpi_client_path(client->plan->dir, act->group, act->to_name, to_path, sizeof(to_path));
	switch ((enum lpi_act_kind)act->kind) {
	case LPI_REMOVE:
		return result_of(unlink(path));
	case LPI_LINK:
		return do_link(client->fd, to_path);
	case LPI_EXCHANGE:
		flags = RENAME_EXCHANGE;
		break;
	default: /* a rename: all others are done elsewhere */
		break;
	}
	return result_of(renameat2(AT_FDCWD, path, AT_FDCWD, to_path, flags));
}

static int do_close(struct lpi_client *client)
{
	int r = result_of(close(client->fd));
	client->fd = -1;
	return r;
}

static int do_it(struct lpi_client *client, struct lpi_act *act)
{
	off_t cells = act->count;
	switch ((enum lpi_act_kind)act->kind) {
	case LPI_OPEN:
	case LPI_CREATE:
		return do_open(client, act);
	case LPI_CLOSE:
		return do_close(client);
	case LPI_READ:
		return do_read(client, act);
	case LPI_STAT:
		return do_stat(client, act);
	case LPI_WRITE:
	case LPI_APPEND:
		return do_write(client, act);
	case LPI_TRUNCATE:
		return result_of(
			ftruncate(client->fd, cells * (off_t)client->plan->cell_bytes[act->group]));
	case LPI_XATTR_SET:
		return result_of(fsetxattr(client->fd, XATTR, &act->value, sizeof(act->value), 0));
	case LPI_XATTR_GET:
		return do_xattr_get(client, act);
	case LPI_SYNC:
		return result_of(fsync(client->fd));
	case LPI_REMOVE:
	case LPI_RENAME:
	case LPI_EXCHANGE:
	case LPI_LINK:
		return do_move(client, act);
	case LPI_PUT:
	case LPI_TAKE:
	case LPI_FIND:
	case LPI_COPY:
	case LPI_START:
	case LPI_KINDS:
		break;
	}
	LP_UNREACHABLE();
}

bool lpi_mounted_do(struct lpi_client *client, struct lpi_act *act)
{
	act->status = do_it(client, act);
	switch (-act->status) {
	case 0:
	case ENOENT:
	case EEXIST:
	case ENODATA:
		return true;
	/* What a program is told whose daemon is gone; the last one of what io_uring was bringing.
	 */
	case ENOTCONN:
	case ECONNABORTED:
	case ECANCELED:
		client->is_lost = true;
		return true;
	default:
		lpi_client_fail(client, "mount, act %u of group %u: %s", act->kind, act->group,
				lp_strerror(act->status));
		return false;
	}
}
