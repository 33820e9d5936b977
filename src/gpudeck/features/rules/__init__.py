# SPDX-License-Identifier: Apache-2.0
"""The rule language of NodeFeatureRules, pure: `evaluating` uses the rest."""
