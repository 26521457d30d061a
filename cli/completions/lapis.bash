# SPDX-License-Identifier: Apache-2.0
# Completion of lapis for bash. Options come from --help; keys from the daemon, one level at a time.

_lapis_commands()
{
	lapis --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[A-Z].*/\1/p'
}

# What begins with $1, each ended by NUL.
_lapis_keys()
{
	local prefix=()
	[[ $1 == */* ]] && prefix=("$1")
	# A daemon that does not answer, or has very much to say, must not hold up the terminal.
	timeout 2 lapis "${address[@]}" ls -0 -- "${prefix[@]}" 2>/dev/null | head -z -n 2000
}

# Bash takes : and = for ends of words: joins word $1 of the line with what belongs to it, up to the
# word that is being completed. The result is in joined, the number of the next word in next.
_lapis_join()
{
	next=$(($1 + 1))
	joined=${COMP_WORDS[$1]-}
	while ((next <= COMP_CWORD)) && [[ ${COMP_WORDS[next]} == [:=]* || $joined == *[:=] ]]; do
		joined+=${COMP_WORDS[next]}
		next=$((next + 1))
	done
}

_lapis()
{
	local word='' at=1 first=1 command='' joined next item cut
	local -a address=() found=() words=()
	while ((at <= COMP_CWORD)); do
		_lapis_join "$at"
		words+=("$joined")
		at=$next
	done
	word=${words[-1]-}
	if [[ ${words[0]-} == -s && ${#words[@]} -gt 2 ]]; then
		address=(-s "${words[1]}")
		first=3
	fi
	COMPREPLY=()
	[[ ${words[0]-} == -s && ${#words[@]} -eq 2 ]] && return
	if ((${#words[@]} == first)); then
		mapfile -t COMPREPLY < <(compgen -W "$(_lapis_commands) -s --help --version" -- "$word")
		return
	fi
	command=${words[first - 1]}
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(lapis "$command" --help 2>/dev/null |
			grep -oE -- '^  (-[A-Za-z0-9], )?--[a-z-]+' | grep -oE -- '--[a-z-]+')" -- "$word")
		return
	fi
	# As it was typed, quoted; what is found is quoted by bash. Of a word with a : in it that is not
	# between quotation marks bash replaces what is behind that only.
	case $word in
	[\'\"]*)
		word=${word:1}
		cut=
		;;
	*)
		word=${word//\\/}
		cut=${word%"${word##*[:=]}"}
		;;
	esac
	case $command in
	mkfs | info | fsck | salvage | grow | store-bench | umount)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	status | stats | top | slow | stuck | bench) return ;;
	bucket | config) ((${#words[@]} == first + 1)) && found=(get set) ;;
	xattr | omap) ((${#words[@]} == first + 1)) && found=(get set rm ls) ;;
	chattr) ((${#words[@]} == first + 1)) && found=(none immutable append-only) ;;
	chmod) ((${#words[@]} == first + 1)) && found=(0600 0640 0644 0700 0750 0755) ;;
	chown) ((${#words[@]} == first + 1)) && mapfile -t found < <(compgen -u) ;;
	alloc) found=(score dump) ;;
	heap) found=(stats release) ;;
	scrub) found=(status start stop wait) ;;
	check) found=(status start stop) ;;
	esac
	if [[ ${#found[@]} -eq 0 && $command != config ]]; then
		mapfile -d '' -t found < <(_lapis_keys "$word")
	fi
	for item in "${found[@]}"; do
		[[ $item == "$word"* ]] && COMPREPLY+=("${item#"$cut"}")
	done
	[[ $command == put || $command == get || $command == cp || $command == sync ]] &&
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2>/dev/null
	return 0
}

complete -o filenames -F _lapis lapis
