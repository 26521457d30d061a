MODULES += native
# client: for client_door_test.c only.
native_USES := namespace client wire store base
