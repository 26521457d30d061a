# Histories of clients at both doors, and the judge of them.
MODULES += linear
linear_USES := client wire base
linear_TOOLS += doors_load
linear_TOOLS += linear_check

.PHONY: kills
# The long form of tests/system/doors_kill.sh: a thousand kills of the daemon under load through both doors, as root.
# It takes up where it was ended, if STATE names the same directory. (KILLS="--kills 200 --seed 7")
kills: all tools
	@linear/kills --build $(OUT) --kills 1000 $(KILLS)
