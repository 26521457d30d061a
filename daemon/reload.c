/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the table of options. A question may be answered before lpi_gather_ask() returns,
 * or in a later turn. So the walk is a loop that stops while a question is under way. The answer's
 * callback goes on with it. */
#include "daemon/reload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

struct lpi_reload {
	struct lp_service *service;
	struct lp_config started;
	struct lp_config wanted;
	int option; /* the next one to look at */
	bool is_busy;
	bool is_asked;       /* a question is under way */
	bool is_walking;     /* the walk is further up on the stack */
	unsigned change_cnt; /* options changed so far */
	unsigned refuse_cnt;
	unsigned later_cnt;
	struct lpi_question question;
};

int lpi_reload_new(struct lp_service *service, const struct lp_config *started,
		   struct lpi_reload **ret_reload)
{
	struct lpi_reload *reload = calloc(1, sizeof(*reload));
	if (reload == NULL)
		return -ENOMEM;
	reload->service = service;
	reload->started = *started;
	*ret_reload = reload;
	return 0;
}

void lpi_reload_free(struct lpi_reload *reload)
{
	LP_ASSERT(reload == NULL || !reload->is_asked);
	free(reload);
}

static bool is_same(const struct lp_config *one, const struct lp_config *other,
		    enum lp_option option)
{
	char text[LP_CONFIG_TEXT_MAX];
	char other_text[LP_CONFIG_TEXT_MAX];
	(void)lp_config_format(one, option, text, sizeof(text));
	(void)lp_config_format(other, option, other_text, sizeof(other_text));
	return strcmp(text, other_text) == 0;
}

static void go_on(struct lpi_reload *reload);

static void answered(struct lpi_question *question)
{
	struct lpi_reload *reload = LP_CONTAINER_OF(question, struct lpi_reload, question);
	const char *why = question->answer.bytes != NULL ? question->answer.bytes
							 : lp_strerror(question->result);
	if (question->result < 0)
		LP_LOG_WARN("reload: %.64s: %.*s", question->text,
			    (int)LP_MIN(question->answer.len, 300u), why);
	reload->refuse_cnt += question->result < 0;
	reload->change_cnt += question->result >= 0;
	lpi_text_fini(&question->answer);
	reload->is_asked = false;
	go_on(reload);
}

/* Sets an option as `lapis config set` does. */
static void set_option(struct lpi_reload *reload, enum lp_option option)
{
	struct lpi_question *question = &reload->question;
	*question = (struct lpi_question){.opcode = LP_WIRE_OP_CONFIG_SET, .answered = answered};
	int len = snprintf(question->text, sizeof(question->text), "%s=", lp_options[option].name);
	(void)lp_config_format(&reload->wanted, option, question->text + len,
			       sizeof(question->text) - (size_t)len);
	question->text_len = (uint32_t)strlen(question->text);
	reload->is_asked = true;
	lpi_gather_ask(reload->service->gather, question);
}

static void look_at(struct lpi_reload *reload, enum lp_option option)
{
	const struct lp_option_info *info = &lp_options[option];
	if (info->is_live) {
		if (!is_same(&reload->service->config, &reload->wanted, option))
			set_option(reload, option);
	} else if (!is_same(&reload->started, &reload->wanted, option)) {
		LP_LOG_WARN("reload: %s can only be set when the daemon starts: it is unchanged",
			    info->name);
		reload->later_cnt++;
	}
}

static void go_on(struct lpi_reload *reload)
{
	if (reload->is_walking)
		return;
	reload->is_walking = true;
	while (!reload->is_asked && reload->option < LP_OPT_CNT)
		look_at(reload, (enum lp_option)reload->option++);
	reload->is_walking = false;
	if (reload->is_asked)
		return;
	reload->is_busy = false;
	LP_LOG_NOTICE("reloaded: %u options changed, %u refused, %u wait for the next start",
		      reload->change_cnt, reload->refuse_cnt, reload->later_cnt);
}

void lpi_reload_begin(struct lpi_reload *reload, const struct lp_config *wanted)
{
	bool was_busy = reload->is_busy;
	reload->wanted = *wanted;
	reload->option = 0;
	reload->change_cnt = 0;
	reload->refuse_cnt = 0;
	reload->later_cnt = 0;
	reload->is_busy = true;
	if (!was_busy)
		go_on(reload);
}
