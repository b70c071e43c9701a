"""Side by side with peers, as ratios in one run: each module measures one thing and returns rows of one table."""
