#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release
# Goal: tests/crash goes on until there is enough, goes on where it had been ended, runs what has no
# seed once, tells what failed, and its sum has all of it.
# Method: a build directory with scripts in place of the tests, which say how much they have judged.
set -euo pipefail
crash=$LP_TEST_SRC/tests/crash
names="tests/whole/whole_test tests/whole/small_test store/block/model_test store/shard/shard_test fuse/model/cut_test
	namespace/shard/crash_test store/block/reopen_test store/log/crash_test"
for name in $names; do
	mkdir -p "$(dirname "build/test/$name")"
	cat >"build/test/$name" <<'CODE'
#!/bin/bash
echo "$(basename "$0") $LAPIS_TEST_FACTOR $LAPIS_TEST_SEED ${LAPIS_TEST_PART:-} ${LAPIS_TEST_ONLY:-}" >>ran
[[ $(basename "$0") != whole_test ]] || echo "7 seeds run"
echo "10 crash states judged"
[[ ! -e broken || $(basename "$0") != shard_test ]]
CODE
	chmod +x "build/test/$name"
done

judge() {
	"$crash" --build build --results results "$@"
}

expect() {
	grep -qF -- "$1" out || { cat out; echo "there is no: $1"; exit 1; }
}

# Two rounds of eight; the second one has the seeds of round 2, and only what has seeds.
judge --states 81 >out
expect "160 crash states judged, 14 seeds run, 0 of 64 parts of every short sequence, 0 failed"
[[ $(wc -l <ran) == 16 && $(grep -c " 2000 " ran) == 8 ]]
grep -q "^shard_test 2 1000  $" ran
grep -q "^shard_test 2 2000  test_power_cut_at_many_events$" ran

# It goes on with round 3, and has every part once, whether in one piece or in several.
rm ran
judge --states 800 --seeds 20 --exhaustive --continue --minutes 0 >out
[[ ! -e ran ]]
judge --states 161 --seeds 20 --exhaustive --continue >out
expect "880 crash states judged, 21 seeds run, 64 of 64 parts of every short sequence, 0 failed"
[[ $(grep -c "^small_test 1000 " ran) == 64 && $(grep -c " 3000 " ran) == 8 ]]
rm ran
judge --states 880 --seeds 20 --exhaustive --continue >out
[[ ! -e ran ]]

# Nothing is begun after a failure, which is told and shows in the sum.
touch broken
judge --states 100000 >out && exit 1
expect "FAIL LAPIS_TEST_FACTOR=2 LAPIS_TEST_SEED=1000 build/test/store/shard/shard_test"
judge --sum >out && exit 1
expect "1 failed"
expect "store/log/crash_test"
