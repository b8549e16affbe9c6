// Every state that one node's objects can reach within bounds keeps the promises; and each rule is needed:
// without it the machine shows how a promise breaks.
#include "services/kv_store/model/objects_model.h"

#include <cstdio>

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

Exploration Explore(const ObjectRules& rules, const ObjectBounds& bounds) {
  return ExploreAndPrint(ObjectsModel(rules, bounds), 5'000'000);
}

void ExpectNoFault(const ObjectBounds& bounds) {
  const Exploration result = Explore({}, bounds);
  EXPECT_EQ(result.fault, "") << result.trace;
  EXPECT_TRUE(result.complete);
}

TEST(ObjectsModelTest, WritersBreakNoPromise) {
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 3, .deletes = 1, .creates = 1});
  ExpectNoFault({.keys = 1, .writers = 2, .puts = 3, .deletes = 1, .creates = 1, .crashes = 1});
}

TEST(ObjectsModelTest, CopyingReadersBreakNoPromise) {
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 2, .copiers = 1, .deletes = 1, .crashes = 1});
  ExpectNoFault({.keys = 1, .writers = 2, .puts = 3, .copiers = 1, .deletes = 1, .creates = 1, .crashes = 1});
}

TEST(ObjectsModelTest, ZeroCopyReadersBreakNoPromise) {
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 3, .holders = 2, .deletes = 1, .creates = 1});
}

TEST(ObjectsModelTest, TheDiskBreaksNoPromise) {
  ExpectNoFault({.keys = 1,
                 .writers = 1,
                 .puts = 2,
                 .deletes = 1,
                 .creates = 1,
                 .crashes = 1,
                 .damages = 1,
                 .places = 2,
                 .slow_writes = false});
}

struct BrokenRule {
  const char* rule;
  bool ObjectRules::*flag;
  ObjectBounds bounds;
  const char* fault;
};

void ExpectFaults(std::initializer_list<BrokenRule> cases) {
  for (const BrokenRule& c : cases) {
    SCOPED_TRACE(c.rule);
    ObjectRules rules;
    rules.*c.flag = false;
    const Exploration result = Explore(rules, c.bounds);
    EXPECT_NE(result.fault.find(c.fault), std::string::npos) << result.fault << "\n" << result.trace;
    std::printf("  without \"%s\" %s\n", c.rule, result.fault.c_str());
  }
}

TEST(ObjectsModelTest, WithoutARuleOfWritersAPromiseBreaks) {
  ExpectFaults({
      {"nothing is found before its commit",
       &ObjectRules::invisible_until_commit,
       {.puts = 1},
       "found before it was committed"},
      {"all layers before the commit",
       &ObjectRules::all_layers_before_commit,
       {.puts = 1},
       "found with wrong bytes"},
      {"a preempted reservation cannot be committed",
       &ObjectRules::preempted_commit_fails,
       {.puts = 1},
       "not its own, or no more"},
      {"a commit counts once",
       &ObjectRules::commit_once,
       {.puts = 1, .deletes = 1, .creates = 1},
       "as it was before its deletion"},
      {"a commit needs its context",
       &ObjectRules::commit_checks_context,
       {.puts = 1, .deletes = 1},
       "found after its deletion"},
      {"a token is used once",
       &ObjectRules::tokens_used_once,
       {.writers = 2, .puts = 2},
       "not its own, or no more"},
      {"a token names the incarnation",
       &ObjectRules::token_has_incarnation,
       {.writers = 2, .puts = 2, .crashes = 1},
       "not its own, or no more"},
      {"bytes under way keep their region",
       &ObjectRules::region_waits_for_writes,
       {.writers = 2, .puts = 2},
       "found with wrong bytes"},
  });
}

TEST(ObjectsModelTest, WithoutARuleOfReadersAPromiseBreaks) {
  ExpectFaults({
      {"confirm after the copy",
       &ObjectRules::confirm_after_copy,
       {.puts = 2, .copiers = 1},
       "accepts wrong bytes"},
      {"a generation names the incarnation",
       &ObjectRules::generation_has_incarnation,
       {.puts = 2, .copiers = 1, .crashes = 1},
       "given twice"},
      {"a new lease is a new copy",
       &ObjectRules::restart_on_new_lease,
       {.puts = 2, .copiers = 1},
       "accepts wrong bytes"},
      {"eviction passes over what is leased",
       &ObjectRules::leases_stop_eviction,
       {.puts = 1, .copiers = 1},
       "a leased object is lost"},
      {"what is held is not used again",
       &ObjectRules::quarantine_held,
       {.puts = 3, .holders = 1, .deletes = 1, .creates = 1},
       "change under a zero-copy reader"},
      {"a closed connection holds nothing",
       &ObjectRules::closing_releases,
       {.puts = 1, .holders = 1, .deletes = 1},
       "kept for nobody"},
      {"readers hold a share of the memory",
       &ObjectRules::bounded_holds,
       {.keys = 2, .puts = 2, .holders = 2},
       "hold all of the memory"},
  });
}

TEST(ObjectsModelTest, WithoutARuleOfTheDiskAPromiseBreaks) {
  ExpectFaults({
      {"slabs are synced before their entry",
       &ObjectRules::data_synced_before_entry,
       {.puts = 1, .crashes = 1, .places = 1, .slow_writes = false},
       "a durable object is lost"},
      {"an entry is of what readers get",
       &ObjectRules::entry_checks_object,
       {.puts = 1, .deletes = 1, .places = 1, .slow_writes = false},
       "found"},
      {"a place waits for the removal of its entry",
       &ObjectRules::place_waits_for_removal,
       {.puts = 2, .crashes = 1, .places = 1, .slow_writes = false},
       "found with wrong bytes"},
      {"bytes are checked when they are read",
       &ObjectRules::reads_check_bytes,
       {.puts = 1, .damages = 1, .places = 1, .slow_writes = false},
       "found with wrong bytes"},
      {"a load ends with a look at the entry",
       &ObjectRules::load_checks_entry,
       {.puts = 1, .deletes = 1, .places = 1, .slow_writes = false},
       "found after its deletion"},
      {"a deletion takes entries with it",
       &ObjectRules::deletion_takes_entries_too,
       {.puts = 1, .deletes = 1, .places = 1, .slow_writes = false},
       "found after its deletion"},
      {"a deletion is synced",
       &ObjectRules::deletion_synced_before_answer,
       {.puts = 1, .deletes = 1, .crashes = 1, .places = 1, .slow_writes = false},
       "as it was before its deletion"},
  });
}

}  // namespace
}  // namespace epic::kv_store
