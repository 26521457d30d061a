/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "daemon/service_impl.h"

struct lpi_shard *lpi_thread_next(struct lpi_thread *thread, const struct lpi_shard *shard)
{
	struct lp_service *service = thread->service;
	uint32_t idx = shard == NULL ? thread->idx : shard->idx + service->thread_cnt;
	return idx < service->shard_cnt ? &service->shards[idx] : NULL;
}

static void errand_back(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lpi_errand *errand = LP_CONTAINER_OF(msg, struct lpi_errand, msg);
	(void)to;
	errand->thread = NULL;
	errand->done(errand);
}

void lpi_errand_end(struct lpi_errand *errand, int result)
{
	struct lpi_thread *thread = errand->thread;
	errand->result = result;
	errand->msg.deliver = errand_back;
	lp_reactor_send(thread->reactor, thread->service->reactor, &errand->msg);
}

static void errand_there(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lpi_errand *errand = LP_CONTAINER_OF(msg, struct lpi_errand, msg);
	(void)to;
	errand->run(errand);
}

void lpi_errand_start(struct lpi_thread *thread, struct lpi_errand *errand)
{
	LP_ASSERT(errand->thread == NULL);
	errand->thread = thread;
	errand->msg.deliver = errand_there;
	lp_reactor_send(thread->service->reactor, thread->reactor, &errand->msg);
}

static void phase_done(struct lpi_errand *errand)
{
	struct lpi_thread *thread = LP_CONTAINER_OF(errand, struct lpi_thread, phase);
	struct lp_service *service = thread->service;
	struct lpi_phase *phase = &service->phase;
	if (errand->result < 0 && phase->result == 0) {
		phase->result = errand->result;
		if (thread->why[0] != '\0' && service->result == 0)
			memcpy(service->why, thread->why, sizeof(service->why));
	}
	if (--phase->left == 0)
		phase->next(service);
}

void lpi_run_phase(struct lp_service *service, void (*run)(struct lpi_errand *errand),
		   void (*next)(struct lp_service *service))
{
	service->phase = (struct lpi_phase){.left = service->thread_cnt, .next = next};
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		struct lpi_errand *errand = &service->threads[i].phase;
		errand->run = run;
		errand->done = phase_done;
		lpi_errand_start(&service->threads[i], errand);
	}
}
