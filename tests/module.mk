# The harness (tests/run), system tests, mutants; the fuzzers, and the tool of the golden images.
MODULES += tests
tests_ROOMS := . whole golden linear
tests_USES := daemon native fuse namespace client wire store base
tests_TOOLS += golden whole doors_load linear_check

, := ,
# Where memory is asked for, so that it can be refused (base/testing/scarce_test.h).
SCARCE_LDFLAGS := $(addprefix -Wl$(,)--wrap=,malloc calloc realloc aligned_alloc mmap)
TEST_LDFLAGS_tests/memory_test := $(SCARCE_LDFLAGS)
TEST_LDFLAGS_native/door_memory_test := $(SCARCE_LDFLAGS)
TEST_LDFLAGS_client/memory_test := $(SCARCE_LDFLAGS)
TEST_LDFLAGS_daemon/service_memory_test := $(SCARCE_LDFLAGS)

.PHONY: mutants
# Known-bad changes, one at a time in a copy of the tree: the tests must notice each (tests/mutants).
mutants:
	@tests/mutants/run $(MUTANTS)

.PHONY: fuzz-long
# Each of them for 20 minutes of CPU, and ten million runs: hours; in pieces, "tests/fuzzing --sum" adds them up.
# (FUZZ="--only wire --minutes 5")
fuzz-long: fuzz
	@tests/fuzzing $(FUZZ)

.PHONY: fuzz-seeds
# The seeds that tests/fuzz/seeds.c makes, over those in tests/fuzz/corpus/.
fuzz-seeds: fuzzers $(OBJ)/tests/fuzz/seeds.o
	$(Q)$(LINK) -o $(OUT)/fuzz/seeds $(OBJ)/tests/fuzz/seeds.o $(FUZZ_LIBS) \
		$(OBJ)/alloc-glibc.o $(call sys_of,fuzz)
	$(Q)mkdir -p $(foreach f,batch blockfs chunks extmap inode keys label pact space values,\
		tests/fuzz/corpus/$(f))
	$(Q)$(OUT)/fuzz/seeds tests/fuzz/corpus

.PHONY: golden
# The golden images of the present format, made again; GOLDEN=--check only says what would change.
golden: tools
	@tests/golden/images $(or $(GOLDEN),--write) --tool $(OUT)/tools/golden

.PHONY: store-kill
# The long form of tests/system/store_kill.sh: a thousand kills.
store-kill: all tools
	@LP_KILL_ROUNDS=1000 LP_KILL_SEED=$(or $(SEED),1) tests/run --build $(OUT) --filter store_kill

.PHONY: wire-kill
# The long form of tests/wire/kill.py: two hundred kills of the daemon, under 8 clients.
wire-kill: all
	@LP_KILL_ROUNDS=200 LP_KILL_CLIENTS=8 LP_KILL_SEED=$(or $(SEED),1) tests/run --build $(OUT) --filter system/wire

.PHONY: coherence
# The long form of tests/system/mount/two_doors.sh: a minute of writers at one door and readers at the other; as root.
coherence: all
	@d=$$(mktemp -d) && cd $$d && LP_TEST_SRC=$(CURDIR) LP_TEST_BUILD=$(abspath $(OUT)) LP_DOORS_SECONDS=60 \
		bash $(CURDIR)/tests/system/mount/two_doors.sh; \
	status=$$?; rm -rf --one-file-system $$d; exit $$status

.PHONY: strangers
# The whole matrix of loads by fio and lapis bench, as root: hours. It goes on behind what has passed.
# (STRANGERS="--only mount.io_uring --seed 7")
strangers: all tools
	@tests/strangers/matrix --build $(OUT) --continue --no-pauses $(STRANGERS)

.PHONY: soak
# Load through both doors for so long, with kills, stops, mounts and changes of options; as root. Results of several
# runs are in build/soak-results: "tests/soak --sum" adds them up. (SOAK_MINUTES=240, SOAK="--seed 7 --memory 512M")
soak: all
	@tests/soak --build $(OUT) --minutes $(or $(SOAK_MINUTES),60) $(SOAK)

.PHONY: kills
# The long form of tests/system/mount/doors_kill.sh: a thousand kills of the daemon under load through both doors, as root.
# It takes up where it was ended, if STATE names the same directory. (KILLS="--kills 200 --seed 7")
kills: all tools
	@tests/linear/kills --build $(OUT) --kills 1000 $(KILLS)
