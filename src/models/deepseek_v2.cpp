#include "models/deepseek_v2.h"

#include "base/error.h"

namespace mlxcel {

MoeOptions deepseek_v2_experts(const Config& c) {
  auto moe = MoeOptions::grouped(c);
  if (const auto scores = c.get<std::string>("scoring_func", "softmax"); scores != "softmax")
    fail(ErrorKind::unsupported, "{}: scoring_func \"{}\": expected softmax", c.where(), scores);
  moe.scoring = Scoring::softmax;
  moe.correction.clear();
  moe.group_score = GroupScore::best;
  const auto method = c.get<std::string>("topk_method", "greedy");
  if (method == "greedy")
    moe.groups = moe.kept_groups = 1;
  else if (method != "group_limited_greedy")
    fail(ErrorKind::unsupported, "{}: topk_method \"{}\": expected greedy or group_limited_greedy", c.where(),
         method);
  // As published: the weights are either made to sum to one or multiplied.
  moe.renormalize = c.get("norm_topk_prob", false);
  if (moe.renormalize) moe.scale = 1.0f;
  return moe;
}

}  // namespace mlxcel
