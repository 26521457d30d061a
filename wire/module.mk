MODULES += wire
wire_USES := base
wire_GEN += format/wire.h
