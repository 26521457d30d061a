# Lapis: one non-recursive Makefile. Each directory has a module.mk that says what it builds
# and which directories it may use; this file turns that into rules. All output is below
# build/<variant>/.
#
#   make                      release build (glibc malloc) into build/release/bin/
#   make ALLOC=jemalloc       the same linked with jemalloc, into build/release-jemalloc/bin/
#                             (also tcmalloc, mimalloc); make allocators: all of them
#   make LTO=no               the same without optimising programs over all files at once, into
#                             build/release-nolto/: links are quick, each operation costs a tenth more CPU
#   make SAN=asan|tsan        with sanitizers, into build/asan/ or build/tsan/
#   make VARIANT=debug|cov    without optimisation, or with coverage counters
#   make test                 build and run the unit and system tests
#   make crash                100,000 crash states, with other seeds than the tests use
#   make proof                1,000,000 crash states, 10,000 random runs, every short sequence
#   make posix                all cases of tests/posix on a mount, which takes minutes; as root
#   make coherence            a minute of changes at one door, and looks at the other; as root
#   make kills                a thousand kills under load through both doors, judged; as root
#   make soak                 an hour of load with kills, stops and changes; SOAK_MINUTES; as root
#   make strangers            fio and lapis bench in all combinations, each with a watchdog: hours; as root
#   make fuzz                 the fuzzers of tests/fuzz, by clang, into build/fuzz/fuzz/
#   make fuzz-long            each of them for 20 minutes of CPU and ten million runs
#   make check                formatting, lint, dependency direction, headers, manual pages
#   make bench                a short form of all experiments, and one page of them: build/bench-short/index.html
#   make bench-targets        the benchmarks that print a figure beside its target
#   make install PREFIX= DESTDIR=
#   make help                 this text

VERSION := 0.1.0

SAN     ?=
VARIANT ?= $(if $(SAN),$(SAN),release)
ALLOC   ?= glibc
LTO     ?=
WERROR  ?=
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= gcc
CXX     ?= g++
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif

ALLOCATORS := glibc jemalloc tcmalloc mimalloc
ifeq ($(filter $(ALLOC),$(ALLOCATORS)),)
$(error ALLOC=$(ALLOC) is not one of: $(ALLOCATORS))
endif
ifeq ($(filter $(VARIANT),release debug asan tsan cov fuzz),)
$(error VARIANT=$(VARIANT) is not one of: release debug asan tsan cov fuzz)
endif
ifneq ($(filter asan tsan,$(VARIANT)),)
ifneq ($(ALLOC),glibc)
$(error a sanitizer brings its own malloc: leave ALLOC=$(ALLOC) out)
endif
endif

ifneq ($(filter-out yes no,$(LTO)),)
$(error LTO=$(LTO) is neither yes nor no)
endif
ifneq ($(LTO),)
ifneq ($(VARIANT),release)
$(error LTO=$(LTO) is for the release build: leave it out)
endif
endif

# What is installed of a release is optimised over all files at once. Objects have ordinary code as
# well, of which everything else is linked: tests and tools are many, and such a link takes seconds.
ifeq ($(VARIANT)$(filter no,$(LTO)),release)
LTO_OBJ  := -flto=auto -ffat-lto-objects
LTO_PROG := -flto=auto
LTO_NOT  := -fno-lto
endif

# Objects are the same for every allocator: only the link and one tiny object differ.
OUT := build/$(VARIANT)$(if $(filter no,$(LTO)),-nolto)
BIN := $(OUT)$(if $(filter-out glibc,$(ALLOC)),-$(ALLOC))/bin
LIBEXEC := $(BIN:/bin=/libexec)
OBJ := $(OUT)/obj

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual \
        -Wcast-align=strict -Wpointer-arith -Wwrite-strings -Wundef -Wvla -Wformat=2 \
        -Wimplicit-fallthrough=5 -Wnull-dereference -Wduplicated-cond -Wduplicated-branches \
        -Wlogical-op $(if $(WERROR),-Werror)
CWARN := -Wstrict-prototypes -Wmissing-prototypes -Wjump-misses-init
# The fuzzers are made by clang, which does not know all of these. gcc sees the same code.
ifeq ($(VARIANT),fuzz)
WARN  := -Wall -Wextra $(if $(WERROR),-Werror)
CWARN :=
endif

OPT_release := -O2 $(LTO_OBJ)
OPT_debug   := -O0 -DLP_ASSERT_SLOW_ON=1
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -DLP_ASSERT_SLOW_ON=1
OPT_tsan    := -O1 -fsanitize=thread -DLP_ASSERT_SLOW_ON=1 -Wno-tsan
OPT_fuzz    := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
               -DLP_ASSERT_SLOW_ON=1
OPT_cov     := -O0 --coverage -DLP_ASSERT_SLOW_ON=1
LD_asan     := -fsanitize=address,undefined
LD_tsan     := -fsanitize=thread
LD_fuzz     := -fsanitize=address,undefined
LD_cov      := --coverage

MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ARCH     ?= $(if $(filter x86_64,$(MACHINE)),-march=x86-64-v2)
CPPFLAGS += -I. -I$(OUT)/gen -D_GNU_SOURCE -DLAPIS_VERSION='"$(VERSION)"'
# What makes a mistake in memory harder to use (scripts/checks/hardening looks for it in what was
# built). Each machine has its own way to guard jumps. FORTIFY looks at calls that were optimised.
# The sanitizers look at the same mistakes themselves, and with AddressSanitizer gcc 12 loses the
# alignment of what is on a guarded stack.
HARDEN_x86_64  := -fcf-protection=full
HARDEN_aarch64 := -mbranch-protection=standard
FORTIFY  := $(if $(filter release,$(VARIANT)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
HARDEN   := -fstack-protector-strong -fstack-clash-protection $(HARDEN_$(MACHINE)) $(FORTIFY)
ifneq ($(filter fuzz asan tsan,$(VARIANT)),)
HARDEN   :=
endif
COMMON   := -g -fno-omit-frame-pointer -pthread -fPIC -fvisibility=hidden $(HARDEN) $(ARCH) $(OPT_$(VARIANT))
CFLAGS   += -std=c17 $(COMMON) $(WARN) $(CWARN)
CXXFLAGS += -std=c++17 $(COMMON) $(WARN) -fno-rtti
# A program is linked with what it uses and no more: each library costs time at its start.
# Tables of addresses are filled in when it starts, and cannot be written to from then on.
LDFLAGS  += -pthread -Wl,--as-needed -Wl,-z,relro,-z,now,-z,noexecstack $(LD_$(VARIANT))
PIE      := -pie

ALLOC_LIBS_glibc    :=
ALLOC_LIBS_jemalloc := -ljemalloc
ALLOC_LIBS_tcmalloc := -ltcmalloc
ALLOC_LIBS_mimalloc := -lmimalloc

.DEFAULT_GOAL := all
MODULES :=
include $(sort $(wildcard */module.mk))

# --- what a module.mk says -------------------------------------------------------------------
# MODULES    += name          the directory
# name_ROOMS := log . check   its directories, in their order: a room uses only itself and those before it;
#                             "." is the directory itself (without the line it is the only one)
# name_USES  := base store    directories it may include from (and links with)
# name_LIBS  := -luring       libraries it needs
# name_PROGS := lapisd        programs: lapisd_main.c, in any room -> bin/lapisd
# name_HELPERS := x           programs that others run: x_main.c -> libexec/x
# name_SBIN := x              scripts for the administrator, installed as they are: name/x -> sbin/x
# name_TOOLS := bdev_bench    programs not installed: bdev_bench_main.c -> build/.../tools/
# name_GEN   := base/x.inc    headers generated into build/.../gen (see scripts/gen-format)
# TEST_LDFLAGS_tests/x_test := -Wl,...   for one test's linking
# Sources are found: *.c and *.cc of each room but for *_test.c and *_main.c. A *_test.c is a cmocka
# program of its own.

rooms_of  = $(patsubst %/.,%,$(addprefix $(1)/,$(or $($(1)_ROOMS),.)))
find_in   = $(wildcard $(addsuffix /$(2),$(call rooms_of,$(1))))
mod_srcs  = $(filter-out %_test.c %_main.c,$(call find_in,$(1),*.c)) $(call find_in,$(1),*.cc)
mod_tests = $(call find_in,$(1),*_test.c)
obj_of    = $(patsubst %,$(OBJ)/%.o,$(basename $(1)))
lib_of    = $(OUT)/lib/liblp_$(1).a
# A module and all it uses, nearest first, for the linker; own libraries after.
closure   = $(1) $(foreach u,$($(1)_USES),$(call closure,$(u)))
uniq_last = $(if $(1),$(call uniq_last,$(filter-out $(lastword $(1)),$(1))) $(lastword $(1)))
mods_of   = $(strip $(call uniq_last,$(call closure,$(1))))
libs_of   = $(foreach m,$(call mods_of,$(1)),$(call lib_of,$(m)))
sys_of    = $(call uniq_last,$(foreach m,$(call mods_of,$(1)),$($(m)_LIBS)))
LINK      = $(CXX) $(PIE) $(LDFLAGS) $(LTO_NOT)
PROG_LINK = $(CXX) $(PIE) $(LDFLAGS) $(LTO_PROG)

ALL_LIBS :=
ALL_BINS :=
ALL_HELPERS :=
ALL_SBIN :=
ALL_TOOLS :=
ALL_TESTS :=
ALL_OBJS :=

define module_rules
$(1)_OBJS := $$(call obj_of,$$(call mod_srcs,$(1)))
ALL_OBJS += $$($(1)_OBJS) $$(call obj_of,$$(call find_in,$(1),*_main.c) $$(call mod_tests,$(1)))
$$(call obj_of,$$(call find_in,$(1),*.c) $$(call find_in,$(1),*.cc)): | $$(addprefix $(OUT)/gen/,$$(foreach m,$$(call mods_of,$(1)),$$($$(m)_GEN)))
$$(call lib_of,$(1)): $$($(1)_OBJS)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)$$(AR) rcsD $$@ $$^
ALL_LIBS += $$(call lib_of,$(1))
$$(foreach p,$$($(1)_PROGS),$$(eval $$(call prog_rule,$(1),$$(p),$(BIN)/$$(p),PROG_LINK)))
ALL_BINS += $$(addprefix $(BIN)/,$$($(1)_PROGS))
$$(foreach p,$$($(1)_HELPERS),$$(eval $$(call prog_rule,$(1),$$(p),$(LIBEXEC)/$$(p),PROG_LINK)))
ALL_HELPERS += $$(addprefix $(LIBEXEC)/,$$($(1)_HELPERS))
ALL_SBIN += $$(addprefix $(1)/,$$($(1)_SBIN))
# Whoever makes only the program gets what it runs as well.
$$(addprefix $(BIN)/,$$($(1)_PROGS)): | $$(addprefix $(LIBEXEC)/,$$($(1)_HELPERS))
$$(foreach p,$$($(1)_TOOLS),$$(eval $$(call prog_rule,$(1),$$(p),$(OUT)/tools/$$(p),LINK)))
ALL_TOOLS += $$(addprefix $(OUT)/tools/,$$($(1)_TOOLS))
$$(foreach t,$$(call mod_tests,$(1)),$$(eval $$(call test_rule,$(1),$$(t))))
ALL_TESTS += $$(patsubst %.c,$(OUT)/test/%,$$(call mod_tests,$(1)))
endef

define prog_rule
$(3): $(call obj_of,$(call find_in,$(1),$(2)_main.c)) $$(call libs_of,$(1)) $(OBJ)/alloc-$(ALLOC).o
	@mkdir -p $$(@D)
	$$(Q)$$($(4)) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $$(call sys_of,$(1)) \
		-Wl,--push-state,--no-as-needed $(ALLOC_LIBS_$(ALLOC)) -Wl,--pop-state
endef

define test_rule
$(OUT)/test/$(basename $(2)): $(OBJ)/$(basename $(2)).o $$(call libs_of,$(1)) $(OBJ)/alloc-glibc.o
	@mkdir -p $$(@D)
	$$(Q)$$(LINK) $$(TEST_LDFLAGS_$(basename $(2))) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) \
		$$(call sys_of,$(1)) -lcmocka
endef

Q := @
ifdef VERBOSE
Q :=
endif

$(foreach m,$(MODULES),$(eval $(call module_rules,$(m))))

# --- fuzzers: tests/fuzz/README.md -------------------------------------------------------------
# tests/fuzz/NAME_fuzz.c becomes fuzz/NAME_fuzz in every build: with a small main that runs files,
# or, in the fuzz build, with libFuzzer.
fuzz_USES := $(tests_USES)
FUZZ_LIBS := $(foreach m,$(filter-out fuzz,$(call mods_of,fuzz)),$(call lib_of,$(m)))
FUZZ_MAIN := $(if $(filter fuzz,$(VARIANT)),,$(OBJ)/tests/fuzz/fuzz_main.o)
FUZZ_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/fuzz/*.c))
ALL_FUZZ  := $(patsubst tests/fuzz/%.c,$(OUT)/fuzz/%,$(wildcard tests/fuzz/*_fuzz.c))
ALL_OBJS  += $(FUZZ_OBJS)

$(FUZZ_OBJS): | $(addprefix $(OUT)/gen/,$(foreach m,$(fuzz_USES),$($(m)_GEN)))
$(OUT)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(FUZZ_MAIN) $(FUZZ_LIBS) $(OBJ)/alloc-glibc.o
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(filter fuzz,$(VARIANT)),-fsanitize=fuzzer) -o $@ $(filter %.o,$^) \
		$(filter %.a,$^) $(call sys_of,fuzz)

# --- old data: tests/strangers -----------------------------------------------------------------
# tests/strangers/stale*.c is one program: it looks for data that is older than what was acknowledged.
STALE_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/strangers/stale*.c))
ALL_OBJS  += $(STALE_OBJS)
ALL_TOOLS += $(if $(STALE_OBJS),$(OUT)/tools/stale)
$(OUT)/tools/stale: $(STALE_OBJS) $(call libs_of,client) $(OBJ)/alloc-$(ALLOC).o
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(call sys_of,client)

# --- loads of tests/strangers -------------------------------------------------------------------
# tests/strangers/race*.c is one program, which needs libaio beside what liblapis needs.
RACE_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/strangers/race*.c))
ALL_OBJS  += $(RACE_OBJS)
ALL_TOOLS += $(if $(RACE_OBJS),$(OUT)/tools/race)
$(OUT)/tools/race: $(RACE_OBJS) $(call libs_of,client) $(OBJ)/alloc-$(ALLOC).o
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(call sys_of,client) -laio

# The seed: with LTO names in an object would be other ones each time.
$(OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(if $(LTO_OBJ),-frandom-seed=$<) -MMD -MP -c -o $@ $<

$(OBJ)/%.o: %.cc
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(if $(LTO_OBJ),-frandom-seed=$<) -MMD -MP -c -o $@ $<

# The one object that knows which allocator this program is linked with.
$(OBJ)/alloc-%.o: Makefile
	@mkdir -p $(@D)
	$(Q)printf 'extern const char lp_allocator_name[];\nconst char lp_allocator_name[] = "%s";\n' $* | \
		$(CC) $(CFLAGS) -x c -c -o $@ -

# docs/format/NAME.md -> gen/format/NAME.h: struct sizes and offsets as static asserts.
$(OUT)/gen/format/%.h: docs/format/%.md scripts/gen-format
	@mkdir -p $(@D)
	$(Q)scripts/gen-format $< > $@.tmp && mv $@.tmp $@

.PHONY: all tests tools fuzz fuzzers test crash proof posix check check-all bench bench-targets allocators install clean help
all: $(ALL_BINS) $(ALL_HELPERS) $(ALL_LIBS)
tools: $(ALL_TOOLS)
tests: all tools fuzzers $(ALL_TESTS)
fuzzers: $(ALL_FUZZ)
fuzz:
	@$(MAKE) --no-print-directory VARIANT=fuzz CC=clang CXX=clang++ fuzzers

allocators:
	@for a in $(ALLOCATORS); do $(MAKE) --no-print-directory ALLOC=$$a all || exit 1; done

test: tests tools
	@tests/run --build $(OUT)

crash: tests
	@tests/crash --build $(OUT) $(CRASH)

proof: tests
	@tests/crash --build $(OUT) --states 1000000 --seeds 10000 --exhaustive $(CRASH)

posix: all
	@d=$$(mktemp -d) && cd $$d && LP_TEST_SRC=$(CURDIR) LP_TEST_BUILD=$(abspath $(OUT)) \
		$(CURDIR)/tests/system/mount/posix_mount.sh --all; \
	status=$$?; rm -rf --one-file-system $$d; exit $$status

check:
	@scripts/check

# One after the other: two makes at once would build the same objects.
bench: tools
	@$(MAKE) --no-print-directory allocators
	@bench/run --short --build $(OUT) $(wildcard bench/experiments/*.yaml)

bench-targets: all tools
	@bench/all --build $(OUT)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man
	@for p in $(ALL_BINS); do install -m 755 $$p $(DESTDIR)$(PREFIX)/bin/ || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/libexec
	@for p in $(ALL_HELPERS); do install -m 755 $$p $(DESTDIR)$(PREFIX)/libexec/ || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/sbin
	@for p in $(ALL_SBIN); do install -m 755 $$p $(DESTDIR)$(PREFIX)/sbin/ || exit 1; done
	@for m in $(wildcard man/*.[1-8]); do \
		d=$(DESTDIR)$(PREFIX)/share/man/man$${m##*.}; \
		install -d $$d && install -m 644 $$m $$d/ || exit 1; done
	@d=$(DESTDIR)$(PREFIX)/share/bash-completion/completions; \
	for c in $(wildcard cli/completions/*.bash); do \
		n=$${c##*/}; \
		install -d $$d && install -m 644 $$c $$d/$${n%.bash} || exit 1; done
	@d=$(DESTDIR)$(PREFIX)/share/zsh/site-functions; \
	for c in $(wildcard cli/completions/_*); do \
		install -d $$d && install -m 644 $$c $$d/ || exit 1; done
	@for s in $(wildcard */*.service.in); do \
		d=$(DESTDIR)$(PREFIX)/lib/systemd/system; n=$${s##*/}; \
		install -d $$d && sed 's,@PREFIX@,$(PREFIX),g' $$s > $$d/$${n%.in} || exit 1; done

clean:
	rm -rf build

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

-include $(ALL_OBJS:.o=.d)
