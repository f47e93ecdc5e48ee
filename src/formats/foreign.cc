#include "formats/foreign.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace spyre::formats {
namespace {

// `prefix` in lower case; blanks and a byte order mark before the text do not count.
bool text_starts_with(std::string_view text, std::string_view prefix) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(), [](char want, char c) {
           return want == static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
         });
}

std::string_view foreign_content(std::string_view head) {
  if (head.starts_with("version https://git-lfs.github.com/spec/"))
    return "a Git LFS pointer, not the file itself ('git lfs pull' fetches that)";
  for (const char* page : {"<!doctype", "<html", "<?xml", "<error"})
    if (text_starts_with(head, page)) return "a web page or an error message in XML: the download went wrong";
  if (head.starts_with("PK\x03\x04")) return "a zip archive (as PyTorch's own checkpoints are)";
  if (head.starts_with("\x1f\x8b")) return "compressed with gzip: unpack it first";
  if (!head.empty() && head.find_first_not_of('\0') == head.npos)
    return "filled with zeros: the download is unfinished";
  return {};
}

}  // namespace

void refuse_foreign(std::string_view head, const std::string& name) {
  if (const std::string_view what = foreign_content(head.substr(0, kForeignHeadBytes)); !what.empty())
    throw_error(ErrorCode::kCorruptData, "{} is {}", name, what);
}

}  // namespace spyre::formats
