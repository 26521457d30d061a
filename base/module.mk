MODULES += base
base_ROOMS := . testing struct memory loop
base_USES :=
base_LIBS := -luring -lisal -lxxhash
