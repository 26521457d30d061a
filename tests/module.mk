# Nothing to link here: the harness (tests/run), system tests and mutants.

.PHONY: mutants
# Known-bad changes, one at a time in a copy of the tree: the tests must notice each (tests/mutants).
mutants:
	@tests/mutants/run $(MUTANTS)
