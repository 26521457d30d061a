/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel lets only root have attributes of this kind. A new setting is set for all channels.
 * Each looks at it with each read, so an atomic is enough. */
#include "fuse/ops/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fuse/channel_state.h"

bool lpi_fuse_is_settings(const struct lpi_fuse_request *request)
{
	struct lp_bytes name = request->message.names[0];
	return lpi_fuse_own(request).nr == LP_INO_ROOT.nr &&
	       name.len == strlen(LPI_FUSE_SETTINGS) &&
	       memcmp(name.data, LPI_FUSE_SETTINGS, name.len) == 0;
}

void lpi_fuse_get_settings(struct lpi_fuse_request *request)
{
	const char *options = request->channel->options.mount_options;
	uint32_t size = request->message.in.getxattr.size;
	char text[LPI_FUSE_SETTINGS_MAX];
	int len = snprintf(text, sizeof(text), "%d %s", (int)getpid(),
			   options == NULL ? "" : options);
	if (len < 0 || (size_t)len >= sizeof(text)) {
		lpi_fuse_answer(request, -ENOSPC);
	} else if (size == 0) {
		const struct fuse_getxattr_out out = {.size = (uint32_t)len};
		lpi_fuse_answer_bytes(request, &out, sizeof(out));
	} else if (size < (uint32_t)len) {
		lpi_fuse_answer(request, -ERANGE);
	} else {
		lpi_fuse_answer_bytes(request, text, (size_t)len);
	}
}

void lpi_fuse_set_settings(struct lpi_fuse_request *request)
{
	static const char *const words[] = {[LPI_FUSE_KEEP_ATIMES] = LPI_FUSE_ATIMES_ALL,
					    [LPI_FUSE_KEEP_FILES_ATIMES] = LPI_FUSE_ATIMES_NO_DIRS,
					    [LPI_FUSE_KEEP_NO_ATIMES] = LPI_FUSE_ATIMES_NONE,
					    [LPI_FUSE_KEEP_EACH_ATIME] = LPI_FUSE_ATIMES_EACH,
					    [LPI_FUSE_KEEP_EACH_FILES_ATIME] =
						    LPI_FUSE_ATIMES_EACH_NO_DIRS};
	const struct lp_fuse_channel *channel = request->channel;
	const struct lp_fuse_message *message = &request->message;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(words); i++) {
		if (strlen(words[i]) != message->data_bytes ||
		    memcmp(words[i], message->data, message->data_bytes) != 0)
			continue;
		for (uint32_t peer = 0; peer < channel->peer_cnt; peer++)
			atomic_store_explicit(&channel->peers[peer]->atimes, i,
					      memory_order_relaxed);
		LP_LOG_NOTICE("the mount: access times from now on: %s", words[i]);
		lpi_fuse_answer(request, 0);
		return;
	}
	lpi_fuse_answer(request, -EINVAL);
}
