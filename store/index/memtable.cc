/* SPDX-License-Identifier: Apache-2.0 */
/* The table in memory that RocksDB puts new records into: a skip list, as its own is, for one
 * writer and any number of readers.
 *
 * Its own is made for any order of keys, of which it asks by three virtual calls for each
 * comparison, and in Debian's build, whose assertions are on, it compares each record that it has
 * put once more with its neighbours on each level. That was a quarter of what the shard's thread
 * does for a create. Here keys are compared as the bytes that they are, and memory is in huge
 * pages: to find a place some fifteen records are looked at, wherever they are.
 *
 * An entry is what RocksDB has written: varint length of the key, key (ours, then 8 bytes: number
 * of the change and kind), varint length of the value, value. In front of it are its links, that of
 * level 0 last. Keys ascend, changes of one key descend.
 *
 *        ... | link 2 | link 1 | link 0 | entry
 *                                        ^ what all pointers point to
 *
 * The writer looks from where it was: `near` has on each level the last entry up to the one that
 * was put last. In the gap behind it on some level the next one lies, or it goes up.
 *
 * A reader sees a link only when all behind it is written (release, acquire), on each level by
 * itself: levels above 0 are shortcuts, and may lack what level 0 has. Nothing is ever taken out;
 * the memory goes with the table, when nobody reads it any more, which RocksDB sees to. As much as
 * one table had is kept for the next one: its pages are there already, and who writes need not
 * wait for the kernel to clear others, which for a huge page takes as long as a hundred inserts. */
#include <rocksdb/memtablerep.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/assert.h"
#include "base/endian.h"
#include "base/memory/huge.h"
#include "base/sanitize.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::Slice;

namespace rocksdb
{
/* Not in an installed header, but exported: memory for iterators that live in an arena. */
class Arena
{
      public:
	char *AllocateAligned(size_t bytes, size_t huge_page_bytes, Logger *logger);
};
} /* namespace rocksdb */

static const uint32_t LEVELS = 12;
static const uint32_t LEVEL_BITS = 2; /* a quarter of each level is in the next one */
static const size_t TRAILER = 8;
/* What RocksDB looks for (db/lookup_key.h, which is not installed) begins with three pointers: to
 * the key as an entry has it, to what is behind its length, and to its end. */
static const size_t LOOKUP_PARTS = 3;
static const uint64_t CHUNK_MIN = 16384;
static const uint64_t CHUNK_SHARE = 16;

using Link = std::atomic<const char *>;

static Link *link_of(const char *entry, uint32_t level)
{
	void *memory = const_cast<char *>(entry);
	return static_cast<Link *>(memory) - 1 - level;
}

static const char *next_of(const char *entry, uint32_t level)
{
	return link_of(entry, level)->load(std::memory_order_acquire);
}

/* The key of an entry, with its trailer. */
static Slice key_of(const char *entry)
{
	uint32_t len = static_cast<uint8_t>(*entry++);
	if (LP_UNLIKELY(len >= 0x80)) {
		len &= 0x7f;
		for (uint32_t shift = 7;; shift += 7) {
			const auto byte = static_cast<uint8_t>(*entry++);
			len |= static_cast<uint32_t>(byte & 0x7f) << shift;
			if (byte < 0x80)
				break;
		}
	}
	return Slice(entry, len);
}

static int compare(const Slice &a, const Slice &b)
{
	const size_t a_len = a.size() - TRAILER;
	const size_t b_len = b.size() - TRAILER;
	const int order = memcmp(a.data(), b.data(), LP_MIN(a_len, b_len));
	if (order != 0)
		return order;
	if (a_len != b_len)
		return a_len < b_len ? -1 : 1;
	const uint64_t a_change = lp_get_le64(a.data() + a_len);
	const uint64_t b_change = lp_get_le64(b.data() + b_len);
	return a_change > b_change ? -1 : static_cast<int>(a_change < b_change);
}

/* --- Memory ------------------------------------------------------------------------------------
 */

struct Chunk {
	char *memory;
	size_t bytes;
};

static Chunk new_chunk(size_t want)
{
	const size_t align = want >= LP_HUGE_BYTES ? LP_HUGE_BYTES : LP_CACHE_LINE;
	const size_t bytes = lp_align_up(want, align);
	auto *memory = static_cast<char *>(std::aligned_alloc(align, bytes));
	if (memory == nullptr)
		throw std::bad_alloc();
	(void)lp_huge_advise(memory, bytes);
	return {memory, bytes};
}

/* Chunks of one size that tables gave back, on whatever thread they went. One thread writes and
 * takes them: all that were given at once, so none can go and come back while he looks at it. */
class Stock
{
      public:
	Stock(size_t chunk_bytes, size_t bytes_max)
	    : chunk_bytes_(chunk_bytes), bytes_max_(bytes_max)
	{
	}
	~Stock()
	{
		(void)drop_kept();
	}
	Stock(const Stock &) = delete;
	Stock &operator=(const Stock &) = delete;

	/* The writer's. As large as they all are, or as is wanted if that is more. */
	Chunk take(size_t want)
	{
		if (want > chunk_bytes_ || !take_kept())
			return new_chunk(LP_MAX(want, chunk_bytes_));
		return {last_taken_, chunk_bytes_};
	}
	void give(const Chunk &chunk)
	{
		const size_t before = kept_.fetch_add(chunk.bytes, std::memory_order_relaxed);
		if (chunk.bytes != chunk_bytes_ || before + chunk.bytes > bytes_max_) {
			kept_.fetch_sub(chunk.bytes, std::memory_order_relaxed);
			std::free(chunk.memory);
			return;
		}
		auto *given = new (chunk.memory) Given{given_.load(std::memory_order_relaxed)};
		lp_san_poison(chunk.memory + sizeof(Given), chunk.bytes - sizeof(Given));
		while (!given_.compare_exchange_weak(given->next, given, std::memory_order_release,
						     std::memory_order_relaxed))
			continue;
	}
	size_t kept_bytes() const
	{
		return kept_.load(std::memory_order_relaxed);
	}
	/* The writer's. */
	size_t drop_kept()
	{
		size_t bytes = 0;
		while (take_kept()) {
			std::free(last_taken_);
			bytes += chunk_bytes_;
		}
		return bytes;
	}

      private:
	struct Given {
		Given *next;
	};

	bool take_kept()
	{
		if (taken_ == nullptr)
			taken_ = given_.exchange(nullptr, std::memory_order_acquire);
		if (taken_ == nullptr)
			return false;
		last_taken_ = reinterpret_cast<char *>(taken_);
		taken_ = taken_->next;
		lp_san_unpoison(last_taken_, chunk_bytes_);
		kept_.fetch_sub(chunk_bytes_, std::memory_order_relaxed);
		return true;
	}

	const size_t chunk_bytes_;
	const size_t bytes_max_;
	std::atomic<Given *> given_{nullptr};
	std::atomic<size_t> kept_{0};
	/* The writer's. */
	Given *taken_ = nullptr; /* the rest of those that he took */
	char *last_taken_ = nullptr;
};

/* --- The list ----------------------------------------------------------------------------------
 */

class TableList
{
      public:
	explicit TableList(std::shared_ptr<Stock> stock) : stock_(std::move(stock))
	{
		for (uint32_t i = 0; i < LEVELS; i++) {
			head_links_[i].store(nullptr, std::memory_order_relaxed);
			near_[i] = head();
		}
	}
	/* When it goes all have left: RocksDB counts them, which ThreadSanitizer does not see. */
	~TableList()
	{
		lp_san_join(this);
		for (const Chunk &chunk : chunks_)
			stock_->give(chunk);
	}
	TableList(const TableList &) = delete;
	TableList &operator=(const TableList &) = delete;

	/* The writer's. Memory for an entry, which put() then gets. */
	char *make(size_t len);
	void put(const char *entry);

	/* Any thread. nullptr: there is none. */
	const char *first() const
	{
		return next_of(head(), 0);
	}
	const char *last() const;
	/* The first one that is not before the key; the last one that is. */
	const char *lower_bound(const Slice &key) const;
	const char *last_before(const Slice &key) const;
	/* Roughly how many are before the key. */
	uint64_t rank(const Slice &key) const;
	size_t used_bytes() const
	{
		return used_.load(std::memory_order_relaxed);
	}

      private:
	/* Whose links are the first of each level; it is no entry. */
	const char *head() const
	{
		return reinterpret_cast<const char *>(head_links_.data() + LEVELS);
	}
	char *allocate(size_t bytes);
	uint32_t random_height();
	bool is_in_gap(uint32_t level, const Slice &key) const;
	void find_gaps(const Slice &key);
	const char *walk(const Slice &key, const char **ret_next) const;

	std::array<Link, LEVELS> head_links_;
	std::atomic<uint32_t> height_{1};
	std::atomic<size_t> used_{0};
	/* The writer's. */
	std::array<const char *, LEVELS> near_;
	char *made_ = nullptr; /* the last entry that was asked for */
	uint32_t made_height_ = 0;
	uint32_t random_ = 0x2545f491;
	const std::shared_ptr<Stock> stock_;
	std::vector<Chunk> chunks_;
	char *free_ = nullptr;
	size_t free_bytes_ = 0;
};

char *TableList::allocate(size_t bytes)
{
	bytes = lp_align_up(bytes, sizeof(Link));
	if (bytes > free_bytes_) {
		chunks_.reserve(chunks_.size() + 1); /* so that it is kept */
		chunks_.push_back(stock_->take(bytes));
		free_ = chunks_.back().memory;
		free_bytes_ = chunks_.back().bytes;
	}
	char *memory = free_;
	free_ += bytes;
	free_bytes_ -= bytes;
	used_.store(used_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
	return memory;
}

/* The same in each run: no table is fuller than another. */
uint32_t TableList::random_height()
{
	uint32_t height = 1;
	random_ ^= random_ << 13;
	random_ ^= random_ >> 17;
	random_ ^= random_ << 5;
	for (uint32_t bits = random_; height < LEVELS && (bits & ((1u << LEVEL_BITS) - 1)) == 0;
	     bits >>= LEVEL_BITS)
		height++;
	return height;
}

char *TableList::make(size_t len)
{
	made_height_ = random_height();
	made_ = allocate(made_height_ * sizeof(Link) + len) + made_height_ * sizeof(Link);
	return made_;
}

/* Between near_ and what follows that on the level. */
bool TableList::is_in_gap(uint32_t level, const Slice &key) const
{
	const char *before = near_[level];
	const char *behind = next_of(before, level);
	return (before == head() || compare(key_of(before), key) < 0) &&
	       (behind == nullptr || compare(key_of(behind), key) > 0);
}

/* From here on near_ has the last entry before the key on each level. Who is in the same gap as
 * the last one on some level is so on all levels above it, which have fewer entries. */
void TableList::find_gaps(const Slice &key)
{
	const uint32_t height = height_.load(std::memory_order_relaxed);
	uint32_t level = 0;
	while (level < height && !is_in_gap(level, key))
		level++;
	const char *at = level < height ? near_[level] : head();
	const char *behind = level < height ? next_of(at, level) : nullptr;
	while (level-- > 0) {
		for (;;) {
			const char *next = next_of(at, level);
			/* What was behind on the level above is behind. */
			if (next == behind || compare(key_of(next), key) > 0) {
				behind = next;
				break;
			}
			at = next;
		}
		near_[level] = at;
	}
}

void TableList::put(const char *entry)
{
	const uint32_t height = made_height_;
	LP_ASSERT(entry == made_);
	find_gaps(key_of(entry));
	if (height > height_.load(std::memory_order_relaxed)) /* near_ is the head up there */
		height_.store(height, std::memory_order_relaxed);
	for (uint32_t i = 0; i < height; i++) {
		new (link_of(entry, i)) Link(next_of(near_[i], i));
		link_of(near_[i], i)->store(entry, std::memory_order_release);
		near_[i] = entry;
	}
}

/* The last entry before the key, or the head; and what followed it when we came there. */
const char *TableList::walk(const Slice &key, const char **ret_next) const
{
	const char *at = head();
	const char *behind = nullptr;
	for (uint32_t level = height_.load(std::memory_order_relaxed); level-- > 0;) {
		for (;;) {
			const char *next = next_of(at, level);
			if (next == nullptr || next == behind || compare(key_of(next), key) >= 0) {
				behind = next;
				break;
			}
			at = next;
		}
	}
	*ret_next = behind;
	return at;
}

const char *TableList::lower_bound(const Slice &key) const
{
	const char *next = nullptr;
	(void)walk(key, &next);
	return next;
}

const char *TableList::last_before(const Slice &key) const
{
	const char *next = nullptr;
	const char *at = walk(key, &next);
	return at == head() ? nullptr : at;
}

const char *TableList::last() const
{
	const char *at = head();
	for (uint32_t level = height_.load(std::memory_order_relaxed); level-- > 0;)
		for (const char *next = at; next != nullptr; next = next_of(at, level))
			at = next;
	return at == head() ? nullptr : at;
}

uint64_t TableList::rank(const Slice &key) const
{
	const char *at = head();
	uint64_t cnt = 0;
	for (uint32_t level = height_.load(std::memory_order_relaxed); level-- > 0;) {
		const char *next = next_of(at, level);
		for (; next != nullptr && compare(key_of(next), key) < 0;
		     next = next_of(at, level)) {
			at = next;
			cnt += UINT64_C(1) << (level * LEVEL_BITS);
		}
	}
	return cnt;
}

/* --- What RocksDB sees of it -------------------------------------------------------------------
 */

class TableIterator : public rocksdb::MemTableRep::Iterator
{
      public:
	explicit TableIterator(const TableList *list) : list_(list)
	{
	}
	~TableIterator() override
	{
		lp_san_leave(list_);
	}
	TableIterator(const TableIterator &) = delete;
	TableIterator &operator=(const TableIterator &) = delete;
	bool Valid() const override
	{
		return at_ != nullptr;
	}
	const char *key() const override
	{
		return at_;
	}
	void Next() override
	{
		at_ = next_of(at_, 0);
	}
	void Prev() override
	{
		at_ = list_->last_before(key_of(at_));
	}
	void Seek(const Slice &key, const char *entry_key) override
	{
		at_ = list_->lower_bound(entry_key != nullptr ? key_of(entry_key) : key);
	}
	void SeekForPrev(const Slice &key, const char *entry_key) override
	{
		const Slice wanted = entry_key != nullptr ? key_of(entry_key) : key;
		at_ = list_->lower_bound(wanted);
		if (at_ == nullptr || compare(key_of(at_), wanted) != 0)
			at_ = list_->last_before(wanted);
	}
	void SeekToFirst() override
	{
		at_ = list_->first();
	}
	void SeekToLast() override
	{
		at_ = list_->last();
	}

      private:
	const TableList *const list_;
	const char *at_ = nullptr;
};

class Table : public rocksdb::MemTableRep
{
      public:
	Table(rocksdb::Allocator *allocator, const std::shared_ptr<Stock> &stock)
	    : rocksdb::MemTableRep(allocator), list_(stock)
	{
	}
	rocksdb::KeyHandle Allocate(const size_t len, char **buf) override
	{
		*buf = list_.make(len);
		return *buf;
	}
	void Insert(rocksdb::KeyHandle handle) override
	{
		list_.put(static_cast<const char *>(handle));
	}
	/* Its default makes an iterator, which 7.8.3 never frees. */
	void Get(const rocksdb::LookupKey &wanted, void *arg,
		 bool (*take)(void *arg, const char *entry)) override
	{
		std::array<const char *, LOOKUP_PARTS> parts;
		memcpy(parts.data(), static_cast<const void *>(&wanted), sizeof(parts));
		const Slice key = key_of(parts[0]);
		LP_ASSERT(key.data() == parts[1] && key.data() + key.size() == parts[2]);
		const char *at = list_.lower_bound(key);
		while (at != nullptr && take(arg, at))
			at = next_of(at, 0);
		lp_san_leave(&list_);
	}
	bool Contains(const char *key) const override
	{
		const char *found = list_.lower_bound(key_of(key));
		lp_san_leave(&list_);
		return found != nullptr && compare(key_of(found), key_of(key)) == 0;
	}
	uint64_t ApproximateNumEntries(const Slice &start, const Slice &end) override
	{
		const uint64_t before = list_.rank(start);
		const uint64_t upto = list_.rank(end);
		return upto > before ? upto - before : 0;
	}
	size_t ApproximateMemoryUsage() override
	{
		return list_.used_bytes();
	}
	rocksdb::MemTableRep::Iterator *GetIterator(rocksdb::Arena *arena) override
	{
		if (arena == nullptr)
			return new TableIterator(&list_);
		char *memory = arena->AllocateAligned(sizeof(TableIterator), 0, nullptr);
		return new (memory) TableIterator(&list_);
	}

      private:
	TableList list_;
};

class TableFactory : public rocksdb::MemTableRepFactory
{
      public:
	TableFactory(size_t chunk_bytes, size_t kept_max)
	    : stock_(std::make_shared<Stock>(chunk_bytes, kept_max))
	{
	}
	/* RocksDB writes it into its file of options and looks up what it reads there: this is one
	 * that it knows, and what it would take without us. */
	const char *Name() const override
	{
		return rocksdb::SkipListFactory::kClassName();
	}
	using rocksdb::MemTableRepFactory::CreateMemTableRep;
	rocksdb::MemTableRep *CreateMemTableRep(const rocksdb::MemTableRep::KeyComparator &,
						rocksdb::Allocator *allocator,
						const rocksdb::SliceTransform *,
						rocksdb::Logger *) override
	{
		return new Table(allocator, stock_);
	}
	size_t kept_bytes() const
	{
		return stock_->kept_bytes();
	}
	size_t drop_kept()
	{
		return stock_->drop_kept();
	}

      private:
	const std::shared_ptr<Stock> stock_; /* tables may outlive us */
};

std::shared_ptr<rocksdb::MemTableRepFactory> lpi_kv_table_factory(uint64_t write_buffer_bytes)
{
	const uint64_t share = write_buffer_bytes / CHUNK_SHARE;
	const size_t chunk = share >= LP_HUGE_BYTES / 2 ? LP_HUGE_BYTES : LP_MAX(share, CHUNK_MIN);
	return std::make_shared<TableFactory>(lp_align_up(chunk, LP_CACHE_LINE),
					      write_buffer_bytes);
}

size_t lpi_kv_table_kept_bytes(const rocksdb::MemTableRepFactory &factory)
{
	return static_cast<const TableFactory &>(factory).kept_bytes();
}

size_t lpi_kv_table_drop_kept(rocksdb::MemTableRepFactory &factory)
{
	return static_cast<TableFactory &>(factory).drop_kept();
}
