#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# variants: release
# Goal: what is installed of liblapis is what others build on: only lapis_ names are seen from outside,
# the header is C99 and C++98, and a program links with the shared and with the static library by
# what pkg-config says. Method: make install into a directory, then a stranger's compiler calls.
set -euo pipefail

build=$LP_TEST_SRC/build/release
so=$build/lib/liblapis.so.0
archive=$build/lib/liblapis.a

foreign=$(nm -D --defined-only "$so" | awk '$3 !~ /^(lapis_|LAPIS_0$)/ { print $3 }')
[ -z "$foreign" ] || { echo "liblapis.so exports $foreign"; exit 1; }
foreign=$(nm -g --defined-only "$archive" | awk 'NF == 3 && $3 !~ /^lapis_/ { print $3 }')
[ -z "$foreign" ] || { echo "liblapis.a exports $foreign"; exit 1; }
# Each function of the header is there, and nothing else.
grep -o '\blapis_[a-z_]*(' "$LP_TEST_SRC/client/lapis.h" | tr -d '(' | grep -v '_fn$' | sort -u >named
nm -D --defined-only "$so" | awk '$3 ~ /^lapis_/ { sub("@.*", "", $3); print $3 }' | sort >exported
diff named exported
readelf -d "$so" | grep -q 'SONAME.*liblapis\.so\.0'
if readelf -d "$so" | grep -q 'NEEDED.*\(rocksdb\|stdc++\|uring\)'; then
	echo "liblapis.so needs what a client has no use for"
	exit 1
fi

make -s -C "$LP_TEST_SRC" install DESTDIR="$PWD/root" PREFIX=/usr >install.log
export PKG_CONFIG_LIBDIR=$PWD/root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$PWD/root
cflags=$(pkg-config --cflags lapis)
libs=$(pkg-config --libs lapis)
static=$(pkg-config --static --libs lapis)

echo '#include <lapis.h>' >header.c
cp header.c header.cc
# shellcheck disable=SC2086
{
	gcc -std=c99 -Wall -Wextra -Wpedantic -Werror $cflags -fsyntax-only header.c
	g++ -std=c++98 -Wall -Wextra -Werror $cflags -fsyntax-only header.cc
	for example in put_get list many; do
		source=$LP_TEST_SRC/client/examples/$example.c
		gcc -std=gnu99 -Wall -Wextra -Werror $cflags -o "$example" "$source" $libs
		gcc -std=gnu99 $cflags -o "$example-static" "$source" -Wl,-Bstatic -llapis \
			-Wl,-Bdynamic ${static//-llapis/}
	done
}

# No daemon is there: one line that says so, and status 1.
for program in ./list ./list-static; do
	if LD_LIBRARY_PATH=$PWD/root/usr/lib LAPIS_ADDRESS=unix:$PWD/none "$program" 2>err; then
		echo "$program succeeded without a daemon"
		exit 1
	fi
	grep -q "no connection to unix:$PWD/none: No such file" err
done
