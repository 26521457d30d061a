# SPDX-License-Identifier: Apache-2.0
# Completion of lapis for bash. Options come from --help; keys from the daemon, one level at a time.

_lapis_commands()
{
	lapis --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[A-Z].*/\1/p'
}

_lapis_keys()
{
	# A daemon that does not answer must not hold up the terminal.
	timeout 2 lapis "${address[@]}" ls "$1" 2>/dev/null
	[[ $1 == */* ]] || timeout 2 lapis "${address[@]}" ls 2>/dev/null
}

_lapis()
{
	local word=${COMP_WORDS[COMP_CWORD]} first=1 command
	local -a address=() found=()
	if [[ ${COMP_WORDS[1]} == -s && $COMP_CWORD -gt 2 ]]; then
		address=(-s "${COMP_WORDS[2]}")
		first=3
	fi
	if [[ $COMP_CWORD -eq $first ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_lapis_commands) -s --help --version" -- "$word")
		return
	fi
	command=${COMP_WORDS[first]}
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(lapis "$command" --help 2>/dev/null |
			grep -oE -- '^  (-[A-Za-z0-9], )?--[a-z-]+' | grep -oE -- '--[a-z-]+')" -- "$word")
		return
	fi
	case $command in
	mkfs | info | fsck | grow | store-bench | umount)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	bucket | config) [[ $COMP_CWORD -eq $((first + 1)) ]] && found=(get set) ;;
	xattr | omap) [[ $COMP_CWORD -eq $((first + 1)) ]] && found=(get set rm ls) ;;
	alloc) found=(score dump) ;;
	heap) found=(stats release) ;;
	esac
	if [[ ${#found[@]} -eq 0 ]]; then
		mapfile -t found < <(_lapis_keys "$word")
	fi
	local item
	COMPREPLY=()
	for item in "${found[@]}"; do
		[[ $item == "$word"* ]] && COMPREPLY+=("$(printf '%q' "$item")")
	done
	[[ $command == put || $command == get || $command == sync ]] &&
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2>/dev/null
	return 0
}

complete -o filenames -F _lapis lapis
