#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release
# Goal: tests/fuzzing runs each fuzzer until it has had enough, goes on where it had been ended, ends the
# turn of one that fails and says so, and its sum has all of it.
# Method: a build directory with scripts in place of the fuzzers, which burn a little CPU and say how often they ran.
set -euo pipefail
mkdir -p build/fuzz
for name in quick bad; do
	cat >build/fuzz/${name}_fuzz <<'CODE'
#!/bin/bash
name=$(basename "$0")
echo "$name $*" >>ran
for ((i = 0; i < 100000; i++)); do :; done
[[ $name != bad_fuzz || ! -e broken ]] || { echo "it broke"; exit 77; }
echo "stat::number_of_executed_units: 4000"
CODE
	chmod +x build/fuzz/${name}_fuzz
done

fuzz() {
	"$LP_TEST_SRC/tests/fuzzing" --build build --results results "$@"
}

expect() {
	grep -qE -- "$1" out || { cat out; echo "there is no: $1"; exit 1; }
}

fuzz --minutes 0.0001 --runs 10000 >out
expect '^bad +12000 runs, .*, 0 failed'
expect '^quick +12000 runs, .*, 0 failed'
[[ $(grep -c '^quick_fuzz' ran) == 3 && $(wc -l <results) == 6 ]]
grep -q -- "build/found/quick $LP_TEST_SRC/tests/fuzz/corpus/quick" ran

# What was done counts.
fuzz --minutes 0.0001 --runs 13000 >out
expect '^quick +16000 runs'
[[ $(grep -c '^quick_fuzz' ran) == 4 ]]

# One fails: it is told, and tried no more; the other goes on.
touch broken
status=0
fuzz --minutes 0.0001 --runs 17000 >out || status=$?
[[ $status == 1 ]]
expect '^bad: failed'
expect 'it broke'
expect '^quick +20000 runs, .*, 0 failed'
fuzz --minutes 0.0001 --runs 21000 --only bad >out || status=$?
[[ $(grep -c '^bad_fuzz' ran) == 5 ]]
status=0
fuzz --sum >out || status=$?
[[ $status == 1 ]]
expect '^  bad +16000 runs, .*, 1 failed'
expect '^  quick +20000 runs, .*, 0 failed'

# Nothing to run is no success.
status=0
fuzz --only none >out 2>&1 || status=$?
[[ $status == 1 ]]
expect 'no fuzzer below'
