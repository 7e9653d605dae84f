#include "tools/toy_engine/tree_draft.h"

#include <algorithm>

namespace specd::toy {
namespace {

// The tokens from the root to the place after `node`.
std::vector<int32_t> PathTo(const ProposedDraft& draft, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = draft.parents[node]) {
    path.push_back(draft.tokens[node]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

void FillRow(const NgramModel& model, std::vector<int32_t> context,
             const std::vector<int32_t>& path, float* row) {
  context.insert(context.end(), path.begin(), path.end());
  model.FillRow(context, row);
}

// Adds the children of the place after `node`.
int AddChildren(const TreeGround& ground, const std::vector<int32_t>& context, int32_t node,
                uint32_t width, ProposedDraft* draft) {
  const std::vector<int32_t> path = PathTo(*draft, node);
  const uint32_t place = node + 1;
  FillRow(ground.drafter, context, path,
          ground.draft_rows + (ground.first_draft + place) * ground.vocab_size);
  specd_draft_request request = {};
  request.struct_size = sizeof(request);
  request.sequence = ground.sequence;
  request.row = ground.first_draft + place;
  request.mask_row = -1;
  request.prefix = path.data();
  request.num_prefix = static_cast<uint32_t>(path.size());
  request.sampling = ground.sampling;
  request.num_children = width;
  request.first_node = static_cast<uint32_t>(draft->tokens.size()) + 1;
  specd_draft_children children = {};
  children.struct_size = sizeof(children);
  const int code = specd_sample_draft(ground.engine, &request, 1, &children);
  if (code != SPECD_OK) return code;
  for (uint32_t i = 0; i < children.num_children; ++i) {
    draft->tokens.push_back(children.children[i].id);
    draft->parents.push_back(node);
    draft->kinds.push_back(static_cast<uint8_t>(children.children[i].kind));
    draft->draft_rows.push_back(request.row);
  }
  return SPECD_OK;
}

}  // namespace

int GrowDraft(const TreeGround& ground, const std::vector<int32_t>& context, ProposedDraft* draft) {
  *draft = {};
  const size_t num_levels = std::min(ground.widths.size(), ground.max_depth);
  int32_t begin = -1;  // the last level is [begin, end)
  int32_t end = 0;
  for (size_t level = 0; level < num_levels; ++level) {
    for (int32_t node = begin; node < end; ++node) {
      const bool has_ended = node >= 0 && draft->tokens[node] == ground.end_token;
      if (has_ended) continue;
      const int code = AddChildren(ground, context, node, ground.widths[level], draft);
      if (code != SPECD_OK) return code;
    }
    begin = end;
    end = static_cast<int32_t>(draft->tokens.size());
  }
  for (int32_t node = -1; node < static_cast<int32_t>(draft->tokens.size()); ++node) {
    const uint32_t place = node + 1;
    FillRow(ground.target, context, PathTo(*draft, node),
            ground.target_rows + (ground.first_target + place) * ground.vocab_size);
    draft->target_rows.push_back(ground.first_target + place);
  }
  return SPECD_OK;
}

}  // namespace specd::toy
