#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: lapis cp copies files into the store, out of it and inside of it; one rule says which name is which; where it is
# not clear nothing is copied, and that is said.
# Method: files and trees there and back, compared; every kind of call that is wrong, with a look that nothing came of it.
set -u
. "$LP_TEST_SRC/tests/lib.sh"
cd "$LP_TEST_SCRATCH" || exit 1
export LAPIS_ADDRESS="unix:$PWD/s"
serve --store mem --shards 2 --memory 128M --listen "$LAPIS_ADDRESS"

# silent ARG...: succeeds and says nothing.
silent()
{
	"$lapis" "$@" >out 2>err || say "lapis $*: $(cat err)"
	if [ -s out ] || [ -s err ]; then
		say "lapis $*: not silent: $(cat out err)"
	fi
}

mkdir -p tree/sub/empty here
head -c 300000 /dev/urandom >one
head -c 5000 /dev/urandom >two
cp one tree/one
cp two tree/sub/two
ln -s sub/two tree/link
chmod 0640 tree/one
touch -d @1000000000 tree/one

# There: one file under its name or another one, several, standard input.
silent mb b
silent cp ./one b/
silent cp "$PWD/two" b/other
silent cp ./one ../"${PWD##*/}"/two lapis:b/more/
silent cp - lapis://b/input <two
"$lapis" ls -r b >list
printf 'b/%s\n' input more/one more/two one other >wanted
cmp -s list wanted || say "there: $(cat list)"
# Back: under its name, into a directory, to standard output.
silent cp b/one ./back
cmp -s one back || say "another back"
silent cp b/more/one lapis:b/more/two ./here/
silent cp b/input ./here
silent cp b/other ./new/
if ! cmp -s one here/one || ! cmp -s two here/two || ! cmp -s two here/input || ! cmp -s two new/other; then
	say "others back: $(ls -R here new)"
fi
"$lapis" cp b/other - >output 2>err || say "to standard output: $(cat err)"
cmp -s two output || say "other on standard output"
# Inside, as ever; and so by its scheme.
silent cp b/one b/inside
silent cp lapis:b/one lapis:b/inside2
"$lapis" cat b/inside2 | cmp -s - one || say "another inside"

# Trees: as they are, with modes, times, symlinks and what is empty; under a name of their own, or as DST.
silent cp -r ./tree t
silent cp -r ./tree/ b/
silent cp -r t ./same
silent cp -r b/tree ./here/
for back in same here/tree; do
	diff -r --no-dereference tree "$back" >diff.out || say "$back: $(cat diff.out)"
	[ "$(stat -c '%a %Y' "$back/one")" = "640 1000000000" ] || say "$back: $(stat -c '%a %Y' "$back/one")"
	[ -d "$back/sub/empty" ] || say "$back: not what is empty"
done
# What has the same size and time and is something else is copied, too.
head -c 300000 /dev/urandom >tree/one
touch -d @1000000000 tree/one
silent cp -r ./tree t
"$lapis" cat t/one | cmp -s - tree/one || say "what looks the same was not copied"
# What the source has not stays.
silent cp ./two t/kept
silent cp -r ./tree ./two t2/
silent cp -r ./tree t
"$lapis" cat t/kept | cmp -s - two || say "what the source has not is gone"
"$lapis" cat t2/two t2/tree/sub/two | cmp -s - <(cat two two) || say "a file beside a tree"
silent cp -r t/sub lapis:t3
"$lapis" cat t3/two | cmp -s - two || say "a tree inside"

# What is not clear: nothing is copied, and both ways to write it are said.
mkdir -p b
echo other >b/one
for call in "one b/x" "b/one b/x" "b/more/one one" "lapis:b/one one" "one lapis:b/x" "-r tree b/x" "b/more/one b"; do
	# shellcheck disable=SC2086 # words of a call
	expect 2 'local file or a key\? write \./[a-z/]+ for the file, lapis:[a-z/]+ for the key' cp $call
done
expect 2 'both local' cp ./one ./x
expect 2 'both local' cp - /x
expect 2 'are not on the same side' cp ./one b/other t/x/
expect 2 'are not on the same side' cp b/other ./one ./here/
if [ -e x ] || [ -e /x ]; then
	say "a copy here of what was refused"
fi
"$lapis" stat b/x >out 2>&1 && say "a copy of what was refused"
cmp -s one here/one || say "one was written to"
# With a scheme the same is clear.
silent cp lapis:b/one lapis:b/clear
silent cp lapis:b/one ./b/one
cmp -s b/one one || say "b/one"

# What is wrong otherwise.
expect 1 'directory \(-r copies it' cp ./tree t4
expect 1 'directory \(-r copies it' cp t ./t4
expect 1 'none: .*|No such file' cp b/none ./x
expect 1 'No such file|no such local file' cp ./none b/x
expect 2 'several' cp ./one ./two b/y
expect 2 'several keys need a directory' cp b/other t/kept ./y
expect 2 'would both become' cp ./one ./here/one b/y/
expect 2 'has no name to use in the store' cp -r . b/
expect 2 'if-absent' cp --if-absent b/other ./y
expect 2 'if-absent' cp -r --if-absent ./tree t
expect 1 'exists' cp --if-absent ./two b/other
"$lapis" cat b/other | cmp -s - two || say "--if-absent"
expect 2 'is not a key' cp ./one lapis:
# The same scheme for sync.
silent sync ./tree lapis:t5
silent sync lapis:t5 same5
diff -r --no-dereference tree same5 >diff.out || say "sync: $(cat diff.out)"
end_daemon TERM
finish
