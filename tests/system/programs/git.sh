#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: git works on the mount as on any file system: clone, checkout, commit, merge, rebase, gc, fsck,
# work trees and clones of clones; and what it has made durable is there after kill -9 of the daemon.
# Method: this repository is cloned onto the mount; what is checked out there is compared with what
# `git archive` gives of the origin, its history by the numbers of its commits and by git fsck.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs git

# The origin may be somebody else's; nothing is to depend on who runs this.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
cat >.gitconfig <<'END'
[user]
	name = Test
	email = test@localhost
[safe]
	directory = *
[gc]
	auto = 0
[init]
	defaultBranch = trunk
[advice]
	detachedHead = false
END
if ! git -C "$LP_TEST_SRC" rev-parse -q --verify HEAD >/dev/null 2>&1; then
	echo "the tree under test is no git repository"
	exit 77
fi

# does ARG...: git succeeds there.
repo=$dir/clone
does()
{
	git -C "$repo" "$@" >git.out 2>&1 || say "git $*: $(tail -n 5 git.out)"
}

# sound WHAT: the repository, and its work tree is what it thinks it is.
sound()
{
	does fsck --full --strict --no-dangling
	grep -Eq 'error|missing|broken|corrupt' git.out && say "$1: fsck: $(head -n 5 git.out)"
	# Not by what its index remembers of times: by the files themselves.
	rm -f "$repo/.git/index"
	does reset -q
	git -C "$repo" status --porcelain >status.out 2>&1
	[ ! -s status.out ] || say "$1: status: $(head -n 5 status.out)"
}

make_store 1G
start first
git clone -q "file://$LP_TEST_SRC" "$repo" >git.out 2>&1 || {
	say "clone: $(tail -n 5 git.out)"
	exit 1
}
mkdir origin
git -C "$LP_TEST_SRC" archive HEAD | tar -x -C origin
diff -r --no-dereference -x .git origin "$repo" >diff.out || say "what is checked out differs: $(head -n 5 diff.out)"
[ "$(git -C "$repo" log --format=%H | sha1sum)" = "$(git -C "$LP_TEST_SRC" log --format=%H | sha1sum)" ] ||
	say "the histories differ"
sound "clone"

# Work: branches that are merged and rebased, a stash, another work tree.
does checkout -q -b one
for ((i = 0; i < 10; i++)); do
	mkdir -p "$repo/new/$i"
	seq "$i" 2000 >"$repo/new/$i/numbers"
	does add new
	does commit -q -m "one $i"
done
does checkout -q -b two HEAD~5
for ((i = 0; i < 5; i++)); do
	seq "$i" 3000 >"$repo/other$i"
	does add .
	does commit -q -m "two $i"
done
does mv new renamed
does commit -q -m "renamed"
does rebase -q one
does checkout -q one
does merge -q --no-ff -m merged two
[ -e "$repo/renamed/0/numbers" ] || say "a rename was not merged"
echo more >>"$repo/other1"
does stash
does stash pop
does checkout -q other1
does worktree add -q "$dir/tree" HEAD~2
[ "$(git -C "$dir/tree" rev-parse HEAD)" = "$(git -C "$repo" rev-parse HEAD~2)" ] || say "the work tree"
does worktree remove "$dir/tree"
sound "work"

# Loose objects become a pack, what is not reachable goes, and all is still there.
head=$(git -C "$repo" rev-parse HEAD)
does gc -q --prune=now
[ "$(find "$repo/.git/objects" -name '*.pack' | wc -l)" = 1 ] || say "gc does not leave one pack"
[ "$(find "$repo/.git/objects" -path '*objects/??/*' | wc -l)" = 0 ] || say "gc leaves loose objects"
does repack -q -a -d
does multi-pack-index write
does commit-graph write --reachable
sound "gc"

# From the mount to the mount, with hard links, and back out of it.
git clone -q "$repo" "$dir/second" 2>git.out || say "a clone of the clone: $(cat git.out)"
git clone -q --no-local "$dir/second" back 2>git.out || say "a clone out of the mount: $(cat git.out)"
[ "$(git -C back rev-parse HEAD)" = "$head" ] || say "the clone of the clone is another"
git -C back fsck --full --no-dangling >git.out 2>&1 || say "fsck out of the mount: $(cat git.out)"

# What git made durable is there when the daemon is killed in the next moment.
git -C "$repo" config core.fsync all
git -C "$repo" config core.fsyncMethod fsync
for ((i = 0; i < 3; i++)); do
	seq "$i" 100 >"$repo/durable$i"
	does add .
	does commit -q -m "durable $i"
	head=$(git -C "$repo" rev-parse HEAD)
	kill_daemon
	start "again$i"
	[ "$(git -C "$repo" rev-parse HEAD)" = "$head" ] || say "a commit is gone after kill -9, $i"
	does fsck --full --no-dangling
	does checkout -q -f HEAD
	cmp <(seq "$i" 100) "$repo/durable$i" || say "a file of a commit is another after kill -9, $i"
done
sound "kill -9"
stop
whole
finish
