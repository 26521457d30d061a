MODULES += base
base_USES :=
base_LIBS := -luring -lisal -lxxhash
