"""Short texts with what is true of them: a small set that tells a prompt that works from one that does not.

Written for this benchmark. Each text has a sentiment, a topic, how satisfied its writer is from 0 to 4 (None where that
makes no sense), statements that are true of it, and statements that are not.
"""

from __future__ import annotations

from typing import NamedTuple

SENTIMENTS = ("positive", "negative", "neutral")
TOPICS = ("sports", "cooking", "technology", "travel", "health")
LEVELS = ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied")


class Labelled(NamedTuple):
    text: str
    sentiment: str
    topic: str
    level: int | None
    true: tuple[str, ...]
    false: tuple[str, ...]


TEXTS = (
    Labelled(
        "I love this phone. The screen is gorgeous, the battery lasts two days and the camera is superb.",
        "positive", "technology", 4,
        ("Is the text about a phone?", "Does the writer like the battery?", "The writer is happy with the product."),
        ("Is the text about a car?", "Does the writer want a refund?", "The writer complains about the camera."),
    ),
    Labelled(
        "My new laptop crashed three times on the first day and support hung up on me. I want my money back.",
        "negative", "technology", 0,
        ("Does the writer want a refund?", "Is the text about a computer?", "The writer is angry."),
        ("Is the writer happy with the laptop?", "Is the text about food?", "The support team was helpful."),
    ),
    Labelled(
        "The software update will be released on Tuesday. It needs about two gigabytes of free space.",
        "neutral", "technology", None,
        ("Is the text about software?", "The update comes on Tuesday."),
        ("Is the writer angry?", "Is the text about cooking?"),
    ),
    Labelled(
        "What a match! Our team scored in the last minute and won the cup. The whole stadium was singing for joy.",
        "positive", "sports", None,
        ("Is the text about sports?", "Did the team win?", "The fans were happy."),
        ("Did the team lose?", "Is the text about medicine?", "The stadium was silent."),
    ),
    Labelled(
        "Another terrible defeat. The goalkeeper slept, the defence was a disaster and the coach should resign.",
        "negative", "sports", 0,
        ("Did the team lose?", "Is the text about a game?", "The writer is disappointed."),
        ("Did the team win?", "Is the writer pleased?", "Is the text about a hotel?"),
    ),
    Labelled(
        "The marathon starts at nine o'clock at the town hall and leads over two bridges to the old harbour.",
        "neutral", "sports", None,
        ("Is the text about a race?", "The marathon starts at nine."),
        ("Is the writer sad?", "Is the text about a recipe?"),
    ),
    Labelled(
        "This soup is the best I have ever made. So rich, so warm, and the children asked for a second bowl.",
        "positive", "cooking", 4,
        ("Is the text about food?", "Did the children like the soup?", "The writer is pleased with the soup."),
        ("Is the text about football?", "Was the soup bad?", "The children hated it."),
    ),
    Labelled(
        "The recipe is wrong: the cake came out burnt, dry and far too salty. I threw it away. Awful.",
        "negative", "cooking", 0,
        ("Was the cake burnt?", "Is the text about baking?", "The writer is unhappy with the recipe."),
        ("Was the cake delicious?", "Is the text about computers?", "The writer recommends the recipe."),
    ),
    Labelled(
        "Chop the onions, fry them in oil for five minutes, then add the rice and a cup of water.",
        "neutral", "cooking", None,
        ("Is this a recipe?", "Does the recipe use rice?"),
        ("Does the recipe use chocolate?", "Is the writer angry?"),
    ),
    Labelled(
        "Our holiday in Lisbon was wonderful: sunny days, friendly people and a charming hotel by the sea.",
        "positive", "travel", 4,
        ("Is the text about a holiday?", "Did the writer like the hotel?", "The weather was good."),
        ("Did it rain all the time?", "Is the text about a doctor?", "The people were rude."),
    ),
    Labelled(
        "The flight was six hours late, our bags were lost and the hotel room was dirty. The worst trip of my life.",
        "negative", "travel", 0,
        ("Was the flight late?", "Is the text about a trip?", "The writer is unhappy with the hotel."),
        ("Was the hotel room clean?", "Is the text about cooking?", "The writer enjoyed the trip."),
    ),
    Labelled(
        "The train to Vienna leaves from platform four. Passengers change in Linz and arrive in the evening.",
        "neutral", "travel", None,
        ("Is the text about a train?", "Do passengers change in Linz?"),
        ("Is the text about a plane?", "Is the writer happy?"),
    ),
    Labelled(
        "Since I started to run every morning I sleep better, my back pain is gone and I feel great.",
        "positive", "health", 4,
        ("Does the writer feel good?", "Is the text about health?", "The back pain is gone."),
        ("Does the writer feel ill?", "Is the text about a laptop?", "The writer sleeps badly."),
    ),
    Labelled(
        "I waited four hours in the clinic, the doctor was rude and the medicine made my headache even worse.",
        "negative", "health", 0,
        ("Was the doctor rude?", "Is the text about a doctor?", "The headache got worse."),
        ("Was the doctor friendly?", "Is the text about a match?", "The medicine helped."),
    ),
    Labelled(
        "Adults should take one tablet twice a day with a glass of water, before meals.",
        "neutral", "health", None,
        ("Is the text about medicine?", "Should it be taken with water?"),
        ("Is the text about a holiday?", "Is the writer angry?"),
    ),
    Labelled(
        "The headphones are fine. The sound is good for the price, but the cable is a bit short.",
        "positive", "technology", 3,
        ("Is the text about headphones?", "The cable is short."),
        ("Is the text about soup?", "The sound is terrible."),
    ),
    Labelled(
        "The restaurant was a let-down: the pasta was cold and the waiter forgot our drinks.",
        "negative", "cooking", 1,
        ("Was the pasta cold?", "The writer is dissatisfied."),
        ("Was the service excellent?", "Is the text about tennis?"),
    ),
)  # fmt: skip
