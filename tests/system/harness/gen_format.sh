#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release
# Goal: scripts/gen-format makes a header that compiles without a warning and encodes what the
# page says, and refuses pages that a compiler or another reader could understand differently.
# Method: one good page compiled and run against bytes written here by hand; then that page with
# one mistake at a time, each of which must be named.
set -euo pipefail
gen=$LP_TEST_SRC/scripts/gen-format

mkdir -p format base
# Byte by byte, and thereby unlike the real one.
cat >base/endian.h <<'CODE'
#pragma once
#include <stdint.h>
#define GET_PUT(bits)                                                                              \
	static inline uint##bits##_t lp_get_le##bits(const void *from)                             \
	{                                                                                          \
		uint64_t value = 0;                                                                \
		for (int i = bits / 8 - 1; i >= 0; i--)                                            \
			value = value << 8 | ((const uint8_t *)from)[i];                           \
		return (uint##bits##_t)value;                                                      \
	}                                                                                          \
	static inline void lp_put_le##bits(void *to, uint##bits##_t value)                         \
	{                                                                                          \
		for (int i = 0; i < bits / 8; i++)                                                 \
			((uint8_t *)to)[i] = (uint8_t)((uint64_t)value >> 8 * i);                  \
	}
GET_PUT(16)
GET_PUT(32)
GET_PUT(64)
CODE
cat >sample.md <<'PAGE'
# A sample

Struct: lp_sample size 40

| offset | size | type | name | meaning | since |
|---|---|---|---|---|---|
| 0 | 4 | u32 | `magic` | a \| in a cell, and a */ too | 1 |
| 4 | 2 | u16 | version | | 1 |
| 6 | 1 | u8 | kind | | 1 |
| 7 | 1 | u8 | reserved_1 | zero | 1 |
| 8 | 8 | i64 | delta | may be negative | 1 |
| 0x10 | 8 | u32[2] | pair | | 2 |
| 24 | 12 | u8[12] | name | | 1 |
| 36 | 4 | u8[4] | reserved_2 | zero | 1 |

Constants: LP_SAMPLE_KIND
| value | name | meaning | since |
|---|---|---|---|
| 1 | data | first | 1 |
| 2 | reserved | given up | 1 |
| 3 | LP_SAMPLE_KIND_TRIM | full name | 1 |

Constants: LP_SAMPLE_MAGIC
| value | name | meaning | since |
|---|---|---|---|
| 0x1122334455667788 | label | wider than an int | 1 |

Flags: LP_SAMPLE_FLAG
| value | name | meaning | since |
|---|---|---|---|
| 0x1 | sync | | 1 |
| 0x80000000 | last | | 1 |

```
Struct: in a fence is not a table
```
PAGE
"$gen" sample.md >format/sample.h

cat >main.c <<'CODE'
#include "format/sample.h"

#include <stdio.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("line %d: %s\n", __LINE__, #cond);                                  \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

int main(void)
{
	struct lp_sample in = {.magic = 0x11223344, .version = 0x5566, .kind = 7, .delta = -2,
			       .pair = {1, 0x8000}, .name = "lapis"};
	const uint8_t want[LP_SAMPLE_SIZE] = {
		0x44, 0x33, 0x22, 0x11, 0x66, 0x55, 7, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 1,    0,    0,    0,    0, 0x80, 0, 0, 'l', 'a', 'p', 'i', 's'};
	uint8_t bytes[LP_SAMPLE_SIZE];
	memset(bytes, 0xaa, sizeof(bytes));
	lp_sample_encode(&in, bytes);
	CHECK(memcmp(bytes, want, sizeof(want)) == 0);
	struct lp_sample out;
	memset(&out, 0xaa, sizeof(out));
	lp_sample_decode(bytes, &out);
	CHECK(memcmp(&in, &out, sizeof(in)) == 0);
	CHECK(LP_SAMPLE_PAIR_OFF == 16 && LP_SAMPLE_PAIR_SIZE == 8);

	CHECK(lp_sample_reserved_is_zero(&out));
	bytes[LP_SAMPLE_RESERVED_1_OFF] = 1;
	lp_sample_decode(bytes, &out);
	CHECK(!lp_sample_reserved_is_zero(&out));
	bytes[LP_SAMPLE_RESERVED_1_OFF] = 0;
	bytes[LP_SAMPLE_SIZE - 1] = 0x80;
	lp_sample_decode(bytes, &out);
	CHECK(!lp_sample_reserved_is_zero(&out));

	enum lp_sample_kind kind = LP_SAMPLE_KIND_TRIM;
	CHECK(kind == 3 && strcmp(lp_sample_kind_name(3), "trim") == 0);
	CHECK(lp_sample_kind_name(2) == NULL);
	CHECK(LP_SAMPLE_MAGIC_LABEL == UINT64_C(0x1122334455667788));
	CHECK(LP_SAMPLE_FLAG_ALL == 0x80000001);
	return 0;
}
CODE
gcc -std=c17 -D_GNU_SOURCE -I. -Wall -Wextra -Wpedantic -Wconversion \
	-Wsign-conversion -Wshadow -Wcast-qual -Wundef -Werror -o main main.c
./main

# refuses WHAT EDIT: the page changed by the sed EDIT must fail and say WHAT.
refuses()
{
	sed "$2" sample.md >bad.md
	if cmp -s sample.md bad.md; then
		echo "the edit changed nothing: $2"
		exit 1
	fi
	if "$gen" bad.md >bad.h 2>bad.err; then
		echo "accepted: $2"
		exit 1
	fi
	if ! grep -q -- "$1" bad.err; then
		echo "expected \"$1\" for: $2"
		cat bad.err
		exit 1
	fi
}
refuses 'gap: version at 5' 's/| 4 | 2 | u16/| 5 | 2 | u16/'
refuses 'overlap: version at 3' 's/| 4 | 2 | u16/| 3 | 2 | u16/'
refuses 'overlap: delta' '/reserved_1/a | 8 | 8 | u64 | twice | | 1 |'
refuses 'size 4, but its type takes 2' 's/| 4 | 2 | u16/| 4 | 4 | u16/'
refuses 'fields end at 40, the declared size is 48' 's/size 40/size 48/'
refuses 'not a multiple of 8: C would add padding' 's/u8 | reserved_1/u64 | reserved_1/;s/| 7 | 1/| 7 | 8/'
refuses 'not a multiple of 8, its widest' 's/size 40/size 36/;/reserved_2/d'
refuses 'not a type' 's/u16/uint16/'
refuses 'not a type' 's/i64/le64/'
refuses 'not a field name' 's/| kind |/| Kind |/'
refuses 'not a field name' 's/| kind |/| switch |/'
refuses 'second field named' 's/| kind |/| version |/'
refuses 'since is' 's/| u32\[2\] | pair | | 2 |/| u32[2] | pair | | 0 |/'
refuses 'the columns must be' 's/| offset | size |/| size | offset |/'
refuses '5 cells' 's/| version | |/| version |/'
refuses 'no table follows' 's/^Flags: LP_SAMPLE_FLAG$/&\nSome words./'
refuses 'expected "Struct:' 's/lp_sample size 40/sample size 40/'
refuses 'the value 3 is taken' 's/| 1 | data/| 3 | data/'
refuses 'defined twice' 's/| 1 | data/| 1 | trim/'
refuses 'a flag is one bit' 's/| 0x1 | sync/| 0x3 | sync/'
refuses 'does not fit 64 bits' 's/0x1122334455667788/0x11223344556677889/'
refuses 'no table with' 's/^Struct: lp_.*$//;s/^Constants:.*$//;s/^Flags:.*$//'
if "$gen" absent.md 2>bad.err; then
	echo "accepted a page that is not there"
	exit 1
fi
