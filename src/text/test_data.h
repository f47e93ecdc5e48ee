// Fixtures of the text tests: the small tokenizers of tests/data (make_tiny_tokenizers.py) and the real model, if
// there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace spyre::text::testing {

inline std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(SPYRE_TEST_DATA) / name;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json read_json(const std::string& name) {
  return nlohmann::json::parse(read_text(data_path(name)));
}

// SmolLM2-135M-Instruct as a GGUF file: $SPYRE_TEST_MODEL, or models/ beside the sources. Empty when neither is there.
inline std::filesystem::path smollm2_gguf() {
  std::filesystem::path path;
  if (const char* given = std::getenv("SPYRE_TEST_MODEL")) {
    path = given;
  } else {
    path = data_path("../../models/SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  std::error_code ec;
  return path.extension() == ".gguf" && std::filesystem::exists(path, ec) ? path : std::filesystem::path{};
}

constexpr const char* kNoModel = "no SmolLM2 GGUF file: set SPYRE_TEST_MODEL, or put it into models/";

inline std::vector<TokenId> ids_of(const nlohmann::json& row, const char* key) {
  return row.at(key).get<std::vector<TokenId>>();
}

}  // namespace spyre::text::testing
