// Result files that many ranks write together and that appear whole or not at all.
//
// One rank creates a temporary file beside the result (header written, space reserved); the others open it
// by the name that rank tells them; each writes its own part. When all have committed theirs, the creator
// commits last, which renames the file into place. The content depends on the tensors alone, not on who
// wrote which part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/tensor_info.h"
#include "kvring/layout.h"
#include "kvring/tensor.h"

namespace kvring {

class OutputFile {
 public:
  // Makes the temporary file for `path`, which must end in .safetensors or, for exactly one tensor, .npy.
  // An existing file at `path` is left alone until commit; a symbolic link is followed. Throws
  // InvalidArgument when the path cannot work (suffix, missing or unwritable directory, is a directory)
  // and InputFile when the file system fails, is full or forbids that size; the message says how many
  // bytes are needed.
  static OutputFile create(const std::string& path, const std::vector<TensorSpec>& tensors);

  // Joins a file created by another process or thread with the same path and tensors. Throws InputFile
  // when it is not there or its header is not the one these tensors have.
  static OutputFile open_existing(const std::string& path, const std::string& temp_path,
                                  const std::vector<TensorSpec>& tensors);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Without a commit, the creator removes the temporary file.
  ~OutputFile();

  const std::string& temp_path() const noexcept { return temp_path_; }

  // Writes `count` elements of a tensor from element `first` on, in row-major order. This and the writes
  // below throw InvalidArgument when the part is outside the tensor or of another dtype or shape, and
  // InputFile when the file system fails. Safe from several threads; where two overlap, either may win.
  void write_elements(const std::string& tensor, std::int64_t first, std::int64_t count, const void* data);

  // Writes the positions of a shard, of all batch entries, of a (batch, seqlen, heads, dim) or (seqlen,
  // heads, dim) tensor from a local one of the same dtype, (batch, shard.tokens(), heads, dim).
  void write_shard(const std::string& tensor, const Shard& shard, const ConstTensorView& local);

  // The same for LSE, f32 of shape (batch, heads, seqlen) or (heads, seqlen), from a local one of shape
  // (batch, heads, shard.tokens()).
  void write_lse_shard(const std::string& tensor, const Shard& shard, const LseView& local);

  // Flushes what this process wrote to the disk, where a late failure shows. The creator then renames the
  // temporary file to the path: call it there last, once every other writer's commit has returned. No
  // write may follow. Throws InputFile.
  void commit();

 private:
  struct Part {
    std::string name;
    TensorInfo info;
  };

  OutputFile() = default;
  void lay_out(const std::string& path, const std::vector<TensorSpec>& tensors);
  void reserve();
  const TensorInfo& find(const std::string& tensor) const;

  std::string path_;    // as messages name it
  std::string target_;  // what the rename replaces: path_, its link followed
  std::string temp_path_;
  bool creator_ = false;  // and not committed: the temporary file is ours to remove
  FileHandle file_;
  std::string header_;
  std::int64_t bytes_ = 0;  // of the whole file
  std::vector<Part> parts_;
};

}  // namespace kvring
