MODULES += namespace
namespace_USES := store base
namespace_GEN += format/namespace.h
