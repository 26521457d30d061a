#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# variants: release
# Goal: every check of scripts/check finds what it is there to find, and nothing in a good tree.
# Method: a tree of two small modules that passes all checks; then one mistake at a time, for
# which the named check must fail and say the expected words. A check without a mistake below
# fails this test.
set -euo pipefail
check=$LP_TEST_SRC/scripts/check

for tool in clang-format clang-tidy mandoc shellcheck; do
	if ! command -v "$tool" >/dev/null; then
		echo "$tool is not installed (scripts/deps --dev)"
		exit 77
	fi
done

# compile_hardened OUT FLAG...: a small program, as the Makefile makes them; the flags undo some of it.
# shellcheck disable=SC2054 # the commas are the linker's
hard_flags=(-O2 -g -fPIC -fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=3
	-pie -Wl,-z,relro,-z,now,-z,noexecstack)
case $(gcc -dumpmachine) in
x86_64-*) hard_flags+=(-fcf-protection=full) ;;
aarch64-*) hard_flags+=(-mbranch-protection=standard) ;;
esac
compile_hardened()
{
	local out=$1
	shift
	gcc -x c "${hard_flags[@]}" "$@" -o "$out" - <<'FILE'
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	char words[64] = "";
	strncat(words, argv[argc - 1], sizeof(words) - 1);
	return printf("%s: %d\n", words, argc);
}
FILE
}

# object SOURCE CODE: what was built of a source, from other code.
object()
{
	local out=build/release/obj/${1%.c}.o
	mkdir -p "$(dirname "$out")"
	echo "$2" | gcc -x c -fno-common -c -o "$out" -
}

make_good_tree()
{
	rm -rf tree
	mkdir -p tree/{base,store,client,docs/format,man,scripts,build/release/bin}
	cp "$LP_TEST_SRC"/.clang-{format,tidy} tree/
	cd tree
	printf 'MODULES += base\nbase_USES :=\n' >base/module.mk
	printf 'MODULES += store\nstore_USES := base\nstore_GEN := format/disk.h\n' >store/module.mk
	printf 'MODULES += client\nclient_USES := base\nclient_PROGS := lapis\n' >client/module.mk
	for dir in base store client docs man scripts; do
		echo "See [the design](../docs/format/disk.md)." >"$dir/README.md"
	done
	cat >base/endian.h <<'FILE'
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LP_BASE_ENDIAN_H
#define LP_BASE_ENDIAN_H

#include <stdint.h>

uint32_t lp_get_le32(const void *from);
void lp_put_le32(void *to, uint32_t value);

#endif
FILE
	cat >base/sum.h <<'FILE'
/* SPDX-License-Identifier: Apache-2.0 */
/* A sum. */
#ifndef LP_BASE_SUM_H
#define LP_BASE_SUM_H

#define LP_SUM_MAX 10

struct lp_sum {
	int value;
};

typedef void lp_sum_fn(struct lp_sum *sum);

extern int lp_sum_count;

/* Why not: */
int lp_sum_add(struct lp_sum *sum, int value) __attribute__((warn_unused_result));
int lpi_sum_helper(void);

/* Takes a function. */
void lp_sum_each(void (*call)(struct lp_sum *sum));
typedef int (*lp_sum_call)(int value);

static inline int lp_sum_get(const struct lp_sum *sum)
{
	return sum->value;
}

#endif
FILE
	cat >base/sum.c <<'FILE'
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sum.h"

#define LP_MACRO(a, b)
#define LP_OTHER

int lp_sum_count = 0;

__attribute__((aligned(8), visibility("hidden"))) static int ignored(void);
LP_MACRO(1, 2) LP_OTHER static void ignored_too(int a);
_Static_assert(sizeof(int) == 4, "an int");
static const char *const words[] = {"a // b", "/* c"};

int lp_sum_add(struct lp_sum *sum, int value)
{
	sum->value += value;
	return words[0] != words[1] ? lpi_sum_helper() : 0;
}

int lpi_sum_helper(void)
{
	return 0;
}
FILE
	cat >store/store.c <<'FILE'
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/sum.h"
#include "format/disk.h"

static int helper(void)
{
	struct lp_sum sum = {0};
	return lp_sum_add(&sum, LP_DISK_SIZE);
}

int lp_store_open(void);

int lp_store_open(void)
{
	return helper();
}
FILE
	cat >docs/format/disk.md <<'FILE'
# Disk

Struct: lp_disk size 4
| offset | size | type | name | meaning | since |
|---|---|---|---|---|---|
| 0 | 4 | u32 | magic | | 1 |
FILE
	# Not in one piece: the real check would take them for citations.
	printf '\n/* As rules S''1, S2 and S3 say. */\n' >>store/store.c
	cat >docs/rules.md <<'FILE'
# Rules

Not built yet: W1.

- **S1 One.** It is one.
- **S2 Two.** It is two.
- **S3 Three.** It is three.
- **W1 Four.** It is four.
FILE
	printf '/* SPDX-License-Identifier: Apache-2.0 */\n/* Holds (rules S''1 to S3). */\n' >store/store_test.c
	cat >man/lapis.1 <<'FILE'
.Dd November 1, 2026
.Dt LAPIS 1
.Os
.Sh NAME
.Nm lapis
.Nd talks to a store
.Sh SYNOPSIS
.Nm
.Op Fl s Ar address
.Op Fl -json
.Sh DESCRIPTION
The options are
.Fl s ,
.Fl -json
and
.Fl -help .
FILE
	cat >scripts/hello <<'FILE'
#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
echo "$1"
FILE
	cat >scripts/hello.py <<'FILE'
# SPDX-License-Identifier: Apache-2.0
import sys

print(sys.argv)
FILE
	cat >build/release/bin/lapis <<'FILE'
#!/bin/sh
echo "lapis [-s ADDRESS] [--json] non-option --help"
FILE
	chmod +x build/release/bin/lapis scripts/hello
	mkdir -p build/release/libexec
	[ -f ../hardened ] || compile_hardened ../hardened
	cp ../hardened build/release/libexec/helper
	object base/sum.c 'int lp_sum; int lpi_sum_helper; '
	object store/store.c 'extern int lp_sum; int lp_store_open(void) { return lp_sum; }'
	cd ..
}

tested=()
# bad CHECK WORDS EDIT...: after EDIT, run in the tree, CHECK must fail and say WORDS.
bad()
{
	local name=$1 words=$2
	shift 2
	tested+=("$name")
	make_good_tree
	(cd tree && eval "$*")
	if "$check" --root tree --only "$name" >out 2>&1; then
		echo "$name did not notice: $*"
		exit 1
	fi
	if ! grep -qF -- "$words" out; then
		echo "$name: expected \"$words\" after: $*"
		cat out
		exit 1
	fi
}
# good CHECK EDIT...: CHECK must still pass.
good()
{
	local name=$1
	shift
	make_good_tree
	(cd tree && eval "$*")
	if ! "$check" --root tree --only "$name" >out 2>&1; then
		echo "$name complained after: $*"
		cat out
		exit 1
	fi
}

make_good_tree
if ! "$check" --root tree --summary sum.json >out 2>&1; then
	echo "the good tree fails:"
	cat out
	exit 1
fi
grep -q '"failed": 0' sum.json

bad clang-format 'clang-format' "sed -i 's/return 0;/return   0;/' base/sum.c"
bad clang-tidy 'misc-redundant-expression' "sed -i 's/+= value;/+= value - value;/' base/sum.c"
# A clean result is remembered; a change in a header must still be seen.
make_good_tree
"$check" --root tree --only clang-tidy >out
[ "$(find tree/build/check/tidy -type f | wc -l)" = 3 ]
sed -i 's/return sum->value;/return sum->value == sum->value;/' tree/base/sum.h
if "$check" --root tree --only clang-tidy >out 2>&1; then
	echo "clang-tidy did not look again after a change in a header"
	exit 1
fi

bad modules 'base does not use store' "echo '#include \"store/store.h\"' >>base/sum.c; touch store/store.h"
bad modules 'client does not use store' "echo '#include \"store/store.h\"' >client/a.c; touch store/store.h"
bad modules 'which uses' "sed -i 's/base_USES :=/base_USES := store/' base/module.mk"
bad modules 'is no module' "sed -i 's/base_USES :=/base_USES := stone/' base/module.mk"
bad modules 'name headers from the root' "sed -i 's,base/sum.h,sum.h,' base/sum.c"
bad modules 'is not in the _GEN' "echo '#include \"format/wire.h\"' >>store/store.c"
bad modules 'which has no module.mk' "mkdir odd; touch odd/a.c"
bad modules 'does not exist' "echo '#include \"base/none.h\"' >>store/store.c"
bad modules 'for *_test.c and' "mkdir base/testing; touch base/testing/test.h; echo '#include \"base/testing/test.h\"' >>base/sum.c"
good modules "sed -i 's,client_USES := base,client_USES := store,' client/module.mk
	echo '#include \"base/sum.h\"' >client/a.c; echo '#include \"format/disk.h\"' >>client/a.c"

# store/ with two rooms, log below check.
with_rooms="mkdir store/log store/check; echo 'store_ROOMS := log . check' >>store/module.mk
	for room in log check; do echo Room. >store/\$room/README.md; done
	echo '#include \"store/log/log.h\"' >store/check/fsck.c; touch store/{log/log.h,log/log_impl.h,check/fsck.h}"
good rooms "$with_rooms"
bad rooms 'room store/check is above store/log' "$with_rooms; echo '#include \"store/check/fsck.h\"' >store/log/log.c"
bad rooms 'is for store/log alone' "$with_rooms; echo '#include \"store/log/log_impl.h\"' >>store/check/fsck.c"
bad rooms 'is no room of' "$with_rooms; mkdir store/odd; touch store/odd/a.c"
good rooms "$with_rooms; echo '#include \"store/check/fsck.h\"' >store/log/log_test.c"
good rooms "$with_rooms; echo '#include \"store/check/fsck.h\"' >store/log/log.c; mkdir scripts/checks
	echo 'rooms store/log/log.c store/check/fsck.h 1' >scripts/checks/exceptions.txt"

bad symbols 'no release build' "rm build/release/obj/base/sum.o"
bad symbols 'no release build' "touch -d 'now + 1 hour' base/sum.c"
# with_calls LOG CHECK: the rooms of before, and what the code of a file in each defines and uses.
with_calls()
{
	eval "$with_rooms"
	touch store/log/log.c
	object store/log/log.c "$1"
	object store/check/fsck.c "$2"
}
good symbols "with_calls 'int lpi_log;' 'extern int lpi_log; int lpi_fsck(void) { return lpi_log; }'"
bad symbols 'uses lpi_fsck of store/check/fsck.c' "with_calls 'extern int lpi_fsck; int lpi_log(void) { return lpi_fsck; }' 'int lpi_fsck;'"
bad symbols 'in a ring: store/check/fsck.c store/log/log.c' "with_calls \
	'int lpi_fsck(void); int lpi_log(void) { return lpi_fsck(); }' \
	'int lpi_log(void); int lpi_fsck(void) { return lpi_log(); }'"
bad symbols 'lpi_log is also in' "with_calls 'int lpi_log;' 'int lpi_log;'"

bad headers 'does not compile alone' "sed -i 's/int value;/size_t value;/' base/sum.h"
bad headers 'Werror=float-conversion' "sed -i 's/return sum->value;/return sum->value * 1.5;/' base/sum.h"
bad headers 'must begin with #ifndef LP_BASE_SUM_H' "sed -i 's/LP_BASE_SUM_H/LP_SUM_H/' base/sum.h"
bad headers 'as C++' "sed -i 's/^int lp_sum_add.*/&\n#ifdef __cplusplus\n#error \"not as C++\"\n#endif/' base/sum.h"

bad names 'sum_add: must begin' "sed -i 's/lp_sum_add/sum_add/' base/sum.[ch]"
bad names 'sum_get: must begin' "sed -i 's/lp_sum_get/sum_get/' base/sum.h"
bad names 'sum_fn: must begin' "sed -i 's/lp_sum_fn/sum_fn/' base/sum.h"
bad names 'sum: must begin' "sed -i 's/struct lp_sum {/struct sum {/' base/sum.h"
bad names 'sum_count: must begin' "sed -i 's/lp_sum_count/sum_count/' base/sum.h"
bad names 'sum_count: must begin' "sed -i 's/lp_sum_count/sum_count/' base/sum.c"
bad names 'helper: must begin' "sed -i 's/static int helper/int helper/' store/store.c"
bad names 'printer: must begin' "echo 'LP_PRINTF(1, 2) void printer(const char *fmt, ...);' >>base/sum.h"
bad names 'stopper: must begin' "echo 'LP_NORETURN void stopper(void);' >>base/sum.h"
bad names 'macro SUM_MAX' "sed -i 's/LP_SUM_MAX/SUM_MAX/' base/sum.h"
bad names 'lpi_sum_helper is for one directory' "sed -i 's/return helper/return lpi_sum_helper/' store/store.c"
bad names 'lp_x: must begin with lapis_' "echo 'void lp_x(void);' >client/lapis.h"
good names "echo 'void lapis_x(void);' >client/lapis.h"

bad source 'no SPDX line' "sed -i 1d base/sum.c"
bad source 'no SPDX line' "sed -i 2d scripts/hello"
bad source 'no SPDX line' "sed -i 1d scripts/hello.py"
bad source 'use /* */' "sed -i 's,return 0;,return 0; // none,' base/sum.c"
bad source 'no typedef' "echo 'typedef struct lp_a { int b; } lp_a;' >>base/sum.h"
bad source 'no typedef' "echo 'typedef struct lp_sum lp_sum_t;' >>base/sum.h"
bad source 'lp__x: no double' "echo 'int lp__x(void);' >>base/sum.h"
bad source '__lp_x: no double' "echo 'int __lp_x(void);' >>base/sum.h"
bad source 'no alloca' "sed -i 's,return 0;,return !alloca(3);,' base/sum.c"
bad source 'finish it' "sed -i 's,Why not:,TO''DO,' base/sum.h"
bad source 'blanks at the end' "sed -i 's,return 0;,& ,' base/sum.c"
bad source 'must end with one newline' "printf '/* end */' >>base/sum.c"
good source "echo 'int lp_a(const char *url); /* http://a, typedef struct */' >>base/sum.h"

bad size '1023 lines: split it' "printf '\n%.0s' {1..1000} >>base/sum.c"
bad size '724 lines: split it' "printf '\n%.0s' {1..701} >>base/sum.c"
good size "sed -i '1a /* Long because it is a table. */' base/sum.c; printf '\n%.0s' {1..1000} >>base/sum.c"
bad size '724 now, 723 allowed' "printf '\n%.0s' {1..701} >>base/sum.c; mkdir scripts/checks
	echo 'size base/sum.c 723' >scripts/checks/exceptions.txt"
good size "printf '\n%.0s' {1..701} >>base/sum.c; mkdir scripts/checks
	echo 'size base/sum.c 730' >scripts/checks/exceptions.txt"
bad size 'only 0 now' "mkdir scripts/checks; echo 'size base/sum.c 730' >scripts/checks/exceptions.txt"
bad size '43 files' "touch base/{1..38}.txt"
bad size 'struct lp_wide has 31 fields' "{ echo 'struct lp_wide {'; printf 'int a%d, *b%d[4];' {1..30}; echo 'void (*call)(int a, int b);'; echo '};'; } >>base/sum.h"
bad size 'names 9 headers' "for i in {1..9}; do touch base/h\$i.h; echo \"#include \\\"base/h\$i.h\\\"\" >>base/sum.h; done"
bad size 'pulls in 31 headers' "for i in {1..31}; do echo \"#include \\\"base/h\$((i + 1)).h\\\"\" >base/h\$i.h; done
	echo '#include \"base/h1.h\"' >>base/sum.h"

bad man 'mandoc complains' "sed -i 's/^.Nd.*/.Xy/' man/lapis.1"
bad man '.Dt LAPIS 1' "sed -i 's/LAPIS 1/LAPIS 8/' man/lapis.1"
bad man 'must name itself' "sed -i 's/Nm lapis/Nm lapsi/' man/lapis.1"
bad man '0 pages in section' "rm man/lapis.1"
bad man '--json is not in lapis --help' "sed -i 's/.--json.//' build/release/bin/lapis"
bad man '--new is in lapis --help' "sed -i 's/--json/--json --new/' build/release/bin/lapis"
bad man '-s is not in lapis' "sed -i 's/.-s ADDRESS.//' build/release/bin/lapis"
bad man 'exits with 2' "echo 'exit 2' >>build/release/bin/lapis"
bad man 'no module makes a program lapisd' "sed 's/lapis/lapisd/;s/LAPIS/LAPISD/' man/lapis.1 >man/lapisd.8;
	sed -i 's/LAPISD 1/LAPISD 8/' man/lapisd.8"

# shellcheck disable=SC2016
bad shell 'SC2086' "sed -i 's/\"\$1\"/\$1/' scripts/hello"
bad python 'scripts/hello.py:4' "sed -i 's/print(/print)/' scripts/hello.py"
bad python 'requests is not in' "sed -i 's/import sys/import requests as sys/' scripts/hello.py"
bad python 'yaml is not in' "sed -i 's/import sys/import yaml as sys/' scripts/hello.py"
bad python 'invalid escape' "echo 'A = \"\\d\"' >>scripts/hello.py"

helper=build/release/libexec/helper
bad hardening 'no program is built' "rm $helper"
bad hardening 'without -fstack-protector-strong' "compile_hardened $helper -fstack-protector"
bad hardening 'no stack protector' "compile_hardened $helper -fno-stack-protector"
bad hardening 'without -fstack-clash-protection' "compile_hardened $helper -fno-stack-clash-protection"
bad hardening 'printf is called without FORTIFY' "compile_hardened $helper -U_FORTIFY_SOURCE"
bad hardening 'no BIND_NOW' "compile_hardened $helper -Wl,-z,lazy"
bad hardening 'no RELRO' "compile_hardened $helper -Wl,-z,norelro"
bad hardening 'its stack is executable' "compile_hardened $helper -Wl,-z,execstack"
bad hardening 'not position-independent' "compile_hardened $helper -no-pie -fno-pic"
bad hardening 'it does not say how' "strip $helper"
bad hardening 'no stack protector' "mkdir build/release/lib; echo 'int one;' |
	gcc -x c -shared -o build/release/lib/liblapis.so.0 -"
good hardening 'mkdir -p build/asan/bin; cp build/release/libexec/helper build/asan/bin; strip build/asan/bin/helper'
if [ "$(uname -m)" = x86_64 ]; then
	bad hardening 'without -fcf-protection=full' "compile_hardened $helper -fcf-protection=none"
fi
bad format-pages 'gap: magic' "sed -i 's/| 0 | 4/| 4 | 4/' docs/format/disk.md"
bad format-pages 'no module.mk names' "sed -i '/_GEN/d' store/module.mk"
bad format-pages 'is not there or has no tables' "rm docs/format/disk.md"
bad format-pages 'is not what' "mkdir -p build/asan/gen/format; echo >build/asan/gen/format/disk.h;
	touch -d 'now + 1 hour' build/asan/gen/format/disk.h"
bad format-pages 'does not compile' "sed -i 's/uint32_t lp_get_le32/uint32_t lp_got_le32/' base/endian.h"

bad links 'none.md is not there' "echo '[x](none.md)' >>base/README.md"
bad links 'has no README.md' "rm store/README.md"
good links "echo '[x](https://example.org/a) [y](#part)' >>base/README.md"

bad links 'store/log: has no README.md' "$with_rooms; rm store/log/README.md"
bad paths 'base/none.h is not there' "echo 'As base/none.h says.' >>base/README.md"
bad paths 'store/gone.c is not there' "echo '/* As store/gone.c says. */' >>base/sum.h"
good paths "echo 'As base/sum.h, base/sum and base/ say; /usr/base/none.h does not.' >>base/README.md"

long=$(printf 'word %.0s' {1..41})
bad prose '41 words' "echo 'Short. $long.' >>base/README.md"
bad prose '41 words' "printf '%s.\n' '$long' >>man/lapis.1"
bad prose 'columns' "printf 'x%.0s' {1..121} >>base/README.md"
bad prose 'a README has at most' "printf 'One.\n\n%.0s' {1..80} >>base/README.md"
bad prose 'only 2 now' "echo '$long.' >>base/README.md; mkdir -p scripts/checks;
	echo 'prose base/README.md 3' >scripts/checks/exceptions.txt"
good prose "echo '$long.' >>base/README.md; mkdir -p scripts/checks;
	echo 'prose base/README.md 2' >scripts/checks/exceptions.txt"

bad rules 'no test cites rule S''1' "sed -i 's/(rules S''1/(it/' store/store_test.c"
bad rules 'no code cites rule S''1' "sed -i 's/rules S''1/it/' store/store.c"
bad rules 'no test cites rule S''3' "sed -i 's/S1 to S3/S1, S2/' store/store_test.c"
bad rules 'which does not exist' "echo '/* As rule S''9 says. */' >>base/sum.c"
bad rules 'calls not built yet' "echo '/* rule W''1 */' >>store/store_test.c"
bad rules 'and is no rule' "sed -i 's/: W1/: W1, W2/' docs/rules.md"
good rules "sed -i 's/S1 to S3/S1,\n * S2 and S3/' store/store_test.c"

# mutant RULES SED TEST: makes a list of one.
mutant()
{
	git init -q
	mkdir -p tests/mutants
	cp "$LP_TEST_SRC/tests/mutants/run" tests/mutants/
	printf 'mutant  a\nrule    %s\nfile    base/sum.c\nsed     %s\ntest    %s\n' "$@" >tests/mutants/a.list
}
good mutants "mutant 'S1, S2, S3' s/value/0/ store/store_test"
bad mutants 'changes nothing' "mutant 'S1, S2, S3' s/nowhere/x/ store/store_test"
bad mutants 'no mutant breaks rule S''2' "mutant 'S1, S3' s/value/0/ store/store_test"
bad mutants 'breaks rule S''9, which does not exist' "mutant 'S1, S2, S3, S9' s/value/0/ store/store_test"
bad mutants 'there is no test base/sum_test' "mutant 'S1, S2, S3' s/value/0/ base/sum_test"

for name in $("$check" --list); do
	if [[ " ${tested[*]} " != *" $name "* ]]; then
		echo "the check $name has no bad example in this test"
		exit 1
	fi
done
if "$check" --only no-such-check >out 2>&1; then
	echo "an unknown check was accepted"
	exit 1
fi
