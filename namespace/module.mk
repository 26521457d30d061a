MODULES += namespace
namespace_ROOMS := state . change ops shard
namespace_USES := store base
namespace_GEN += format/namespace.h
# Memory that can be refused (tests/module.mk).
TEST_LDFLAGS_namespace/change/pact_test = $(SCARCE_LDFLAGS)
