/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file of any bytes. One that is refused leaves all as it was and is told why; of
 * one that is accepted every value can be shown, and set again to the same. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/config/config.h"
#include "tests/fuzz/fuzz.h"

static void check_values(const struct lp_config *config)
{
	static struct lp_config again;
	static char text[LP_CONFIG_TEXT_MAX];
	char why[LP_WHY_MAX];
	again = *config;
	for (int i = 0; i < LP_OPT_CNT; i++) {
		enum lp_option option = (enum lp_option)i;
		int len = lp_config_format(config, option, text, sizeof(text));
		LP_ASSERT(len < (int)sizeof(text));
		if (text[0] == '\0' || lp_options[i].type == LP_OPTION_LIST)
			continue;
		int err = lp_config_set(&again, option, text, why);
		LP_ASSERT(err == 0);
	}
	again.given = config->given;
	LP_ASSERT(memcmp(&again, config, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static struct lp_config config;
	static struct lp_config before;
	char why[LP_WHY_MAX] = "";
	lp_config_init(&before);
	config = before;
	int err = lp_config_parse(&config, "f", (const char *)bytes, len, why);
	if (err == 0) {
		check_values(&config);
		return 0;
	}
	LP_ASSERT(err == -EINVAL);
	LP_ASSERT(strncmp(why, "f:", 2) == 0);
	LP_ASSERT(memcmp(&config, &before, sizeof(config)) == 0);
	return 0;
}
