// The machine that a plan is for: what it computes, holds and moves. Plain figures, each with its kind and
// source.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvring/tensor.h"

namespace kvring {

struct Figure {
  double value = 0;
  std::string kind;    // "dense peak", "per device, one direction", ...
  std::string source;  // empty in a user's own file
};

// What one rank gets of a link in one direction: a transfer of n bytes takes latency_s + n / bytes_per_s.
struct Link {
  Figure bytes_per_s;
  Figure latency_s;
  // What a rank's computing loses while a message comes in and another goes out, for each byte of either:
  // cores that compute also copy and check. 0 where they do not.
  Figure computing_s_per_byte;
  // What such a message gets of the link for as long as the ranks compute, at most bytes_per_s. 0: all of it.
  Figure computing_bytes_per_s;
};
struct NodeLink : Link {
  Figure links;  // that all ranks of a node share
};

// What a call does beside its steps: it packs its keys, and takes queries in and gives outputs out.
struct CallRates {
  Figure keys_bytes_per_s;  // of keys and values
  Figure rows_bytes_per_s;  // of queries, outputs and accumulators
};

struct Machine {
  std::string name;
  std::string description;
  std::array<std::optional<Figure>, 3> flops_per_s;  // by DType; none: the machine does not have the type
  Figure memory_bytes;                               // of one rank
  Figure memory_bytes_per_s;                         // of one rank
  std::optional<CallRates> calls;                    // none: not known, and not priced
  Figure ranks_per_node;
  Figure threads;  // of one rank
  Link within_node;
  Figure within_node_links;               // transfers at full speed at a time, more share; 0: any number
  std::optional<NodeLink> between_nodes;  // none: a ring cannot leave the node

  // Operations per second. Throws InvalidArgument naming the types that the machine has.
  double flops(DType dtype) const;
  int node_ranks() const noexcept { return static_cast<int>(ranks_per_node.value); }
};

// All of src/planner/catalogue/machines.json, in order.
const std::vector<Machine>& machine_catalogue();

// One machine in the catalogue's format, where a figure may also be a bare number. `where` is what messages
// call the text. Throws InputFile for text that is no such machine, naming the key and what would work.
Machine parse_machine(const std::string& text, std::string_view where);

// A machine of the catalogue, or else the machine in the file of that name. Throws InvalidArgument where
// there is neither, naming the catalogue's machines; InputFile for a bad file.
Machine find_machine(const std::string& name_or_file);

}  // namespace kvring
