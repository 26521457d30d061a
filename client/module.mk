MODULES += client
client_USES := wire base

TEST_LDFLAGS_client/address_test := -Wl,--wrap=getaddrinfo -Wl,--wrap=freeaddrinfo

# liblapis for others: shared, with the lapis_ functions only, and static, as one object in which all
# other names are local.
LAPIS_SO   := $(OUT)/lib/liblapis.so.0
LAPIS_A    := $(OUT)/lib/liblapis.a
LAPIS_PART := $(OUT)/lib/liblp_client.a $(OUT)/lib/liblp_wire.a $(OUT)/lib/liblp_base.a
LAPIS_EXAMPLES := $(patsubst %.c,$(OUT)/%,$(wildcard client/examples/*.c))

all: $(LAPIS_SO) $(LAPIS_A)
tests: $(LAPIS_EXAMPLES)

$(LAPIS_SO): $(LAPIS_PART) client/lapis.map
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(LTO_NOT) -shared -Wl,-soname,liblapis.so.0 -Wl,--version-script=client/lapis.map \
		-Wl,--gc-sections -o $@ -Wl,--whole-archive $(OUT)/lib/liblp_client.a \
		-Wl,--no-whole-archive $(OUT)/lib/liblp_wire.a $(OUT)/lib/liblp_base.a -lisal -lxxhash
	$(Q)ln -sf liblapis.so.0 $(OUT)/lib/liblapis.so

$(LAPIS_A): $(LAPIS_PART)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(LD) -r -o $(OUT)/lib/lapis.o --whole-archive $(OUT)/lib/liblp_client.a \
		--no-whole-archive $(OUT)/lib/liblp_wire.a $(OUT)/lib/liblp_base.a
	$(Q)objcopy --localize-hidden --wildcard --remove-section='.gnu.*lto_*' $(OUT)/lib/lapis.o
	$(Q)$(AR) rcsD $@ $(OUT)/lib/lapis.o

# As someone else's program: C99, the header by its own name, the shared library.
$(OUT)/client/examples/%: client/examples/%.c client/lapis.h $(LAPIS_SO)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -g -O1 -fPIE $(PIE) $(HARDEN) -Iclient $(LDFLAGS) \
		-o $@ $< -L$(OUT)/lib -llapis -Wl,-rpath,'$$ORIGIN/../../lib'

.PHONY: install-client
install: install-client
install-client: $(LAPIS_SO) $(LAPIS_A)
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 client/lapis.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(LAPIS_A) $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(LAPIS_SO) $(DESTDIR)$(PREFIX)/lib/liblapis.so.$(VERSION)
	ln -sf liblapis.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/liblapis.so.0
	ln -sf liblapis.so.0 $(DESTDIR)$(PREFIX)/lib/liblapis.so
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' client/lapis.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/lapis.pc
