"""Extensions of the core by reinforcement learning."""

EXTENDS = {
    "evaluator": ["mtlscale.rl.evaluation:episode_evaluator"],
    "before_training": ["mtlscale.rl.evaluation:use_ray_workers"],
    "after_training": ["mtlscale.rl.run_artifacts:draw_episodes"],
    "studies": ["mtlscale.rl.report.sample_efficiency:sample_efficiency_studies"],
}
