/* SPDX-License-Identifier: Apache-2.0 */
/* Counters that several threads share: one slot of cache lines for each CPU.
 *
 * Threads: add, sum and cpu on any, also in signal handlers and in the child of a fork; new and
 *   free while no other thread uses the counters.
 * Blocking: none.
 * Memory: allocated by new.
 * Limits: a library with this inside must not be unloaded while a thread runs that used it, because
 *   the kernel may still look at its last sequence.
 *
 * No two cores write the same line, and a thread finds its slot without asking the kernel. On
 * x86-64 an update is a restartable sequence (rseq(2)): it reads the CPU number that the kernel
 * keeps in the thread's rseq area, and adds to that CPU's counter with one plain instruction. If
 * the kernel takes the CPU away in between, it sends the thread back to the start. So no update is
 * lost or counted twice, without a system call or an atomic instruction. Elsewhere, and for threads
 * without a registered rseq area (glibc before 2.35, or switched off), the update is a relaxed
 * atomic add on the slot of the CPU. The same holds under the sanitizers, which cannot see into the
 * assembly.
 *
 * Counters are signed: a gauge may be raised on one CPU and lowered on another. A sum is exact once
 * the adds are ordered before it. While others add, it is a sum of values that the slots had at
 * some time. A shard's own counters are plain; this is for counters that threads of several kinds
 * share.
 */
#ifndef LP_BASE_STRUCT_PERCPU_H
#define LP_BASE_STRUCT_PERCPU_H

#include <sched.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "base/sanitize.h"

#if defined(__has_include)
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define LP_PERCPU_HAS_AREA 1
#endif
#endif
#ifndef LP_PERCPU_HAS_AREA
#define LP_PERCPU_HAS_AREA 0
#endif

/* Whether updates are restartable sequences where the kernel allows them. */
#if LP_PERCPU_HAS_AREA && defined(__x86_64__) && defined(__LP64__) && !LP_SAN_ADDRESS &&           \
	!LP_SAN_THREAD
#define LP_PERCPU_RSEQ 1
#else
#define LP_PERCPU_RSEQ 0
#endif

#define LP_PERCPU_COUNTERS_MAX 4096u

/* Read it here, write it through the functions. The two kinds of update have slots of their own. A
 * plain add of one CPU and an atomic one of another on the same word would lose updates. */
struct lp_percpu {
	char *plain;           /* slots of the restartable updates */
	_Atomic int64_t *safe; /* slots of the atomic updates */
	size_t stride;         /* bytes from one CPU's slot to the next */
	uint64_t plain_cpus;   /* CPUs that have a plain slot; 0 switches them off */
	uint32_t cpus;
	uint32_t counters;
};

/* All counters 0. 0 < nr_counters <= LP_PERCPU_COUNTERS_MAX. NULL when there is no memory. */
struct lp_percpu *lp_percpu_new(uint32_t nr_counters) LP_MUST_CHECK;
/* Accepts NULL. */
void lp_percpu_free(struct lp_percpu *percpu);

/* The CPU that the thread runs on, or ran on just before; 0 if it is not known. */
static inline unsigned lp_percpu_cpu(void)
{
#if LP_PERCPU_HAS_AREA
	if (LP_LIKELY(__rseq_size != 0)) {
		const char *area = (const char *)__builtin_thread_pointer() + __rseq_offset;
		/* The kernel writes it whenever it moves the thread. */
		const volatile uint32_t *cpu_id =
			(const volatile void *)(area + offsetof(struct rseq, cpu_id));
		uint32_t cpu = *cpu_id;
		/* Negative numbers mean that the area is not registered. */
		if (LP_LIKELY(cpu <= INT32_MAX))
			return cpu;
	}
#endif
	int asked = sched_getcpu();
	return asked < 0 ? 0 : (unsigned)asked;
}

/* An update that works on any machine and thread. */
void lpi_percpu_add_safe(struct lp_percpu *percpu, uint32_t idx, int64_t delta);

#if LP_PERCPU_RSEQ
/* False, with nothing done, when this thread has no registered rseq area.
 *
 * Between labels 1 and 2 the kernel watches: after a preemption or a signal it resumes at label 4
 * instead, which starts over. The CPU number is read inside, so it is that of the CPU on which the
 * last instruction, the add, commits. The descriptor (label 3) says where the sequence starts, how
 * long it is and where it aborts to; the word before the abort target must be the signature that
 * glibc registered with. A thread whose area is not registered has a cpu_id that passes no unsigned
 * comparison, and the kernel ignores its rseq_cs. */
static inline bool lp_percpu_add_plain(struct lp_percpu *percpu, uint32_t idx, int64_t delta)
{
	_Static_assert(offsetof(struct rseq, cpu_id) == 4, "as in the assembly");
	_Static_assert(offsetof(struct rseq, rseq_cs) == 8, "as in the assembly");
	_Static_assert(RSEQ_SIG == 0x53053053, "as in the assembly");
	char *counter = percpu->plain + (size_t)idx * sizeof(int64_t);
again:
	__asm__ goto(".pushsection __rseq_cs, \"aw\"\n\t"
		     ".balign 32\n"
		     "3:\n\t"
		     ".long 0, 0\n\t"
		     ".quad 1f, 2f - 1f, 4f\n\t"
		     ".popsection\n\t"
		     "leaq 3b(%%rip), %%rax\n\t"
		     "movq %%rax, %%fs:8(%[area])\n"
		     "1:\n\t"
		     "movl %%fs:4(%[area]), %%eax\n\t"
		     "cmpq %[cpus], %%rax\n\t"
		     "jae %l[absent]\n\t"
		     "imulq %[stride], %%rax\n\t"
		     "addq %[delta], (%[counter], %%rax)\n"
		     "2:\n\t"
		     ".pushsection __rseq_failure, \"ax\"\n\t"
		     ".byte 0x0f, 0xb9, 0x3d\n\t"
		     ".long 0x53053053\n"
		     "4:\n\t"
		     "jmp %l[again]\n\t"
		     ".popsection"
		     :
		     : [area] "r"(__rseq_offset), [cpus] "rm"(percpu->plain_cpus),
		       [stride] "rm"(percpu->stride), [delta] "er"(delta), [counter] "r"(counter)
		     : "rax", "cc", "memory"
		     : again, absent);
	return true;
absent:
	return false;
}
#endif

static inline void lp_percpu_add(struct lp_percpu *percpu, uint32_t idx, int64_t delta)
{
	LP_ASSERT(idx < percpu->counters);
#if LP_PERCPU_RSEQ
	if (LP_LIKELY(percpu->plain_cpus != 0) &&
	    LP_LIKELY(lp_percpu_add_plain(percpu, idx, delta)))
		return;
#endif
	lpi_percpu_add_safe(percpu, idx, delta);
}

int64_t lp_percpu_sum(const struct lp_percpu *percpu, uint32_t idx);

#endif
