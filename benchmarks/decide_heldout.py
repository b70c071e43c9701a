"""Texts that no prompt and no option was chosen on: what a shipped manifest is worth, measured and nothing else.

Written for this benchmark, three texts of each of twelve subjects. Whoever chooses prompts does so on `labelled`.
"""

from __future__ import annotations

from typing import NamedTuple

SUBJECTS = (
    "law", "money", "weather", "music", "school", "gardening",
    "animals", "cars", "housing", "astronomy", "work", "books",
)  # fmt: skip
KINDS = ("question", "complaint", "thanks", "instruction", "report")
URGENCY = ("not urgent", "somewhat urgent", "very urgent")
PLEASURE = ("very displeased", "displeased", "neither", "pleased", "very pleased")
PLEASED = {"complaint": 0, "thanks": 1}
"""Whether the writers of texts of these kinds are pleased."""


class Held(NamedTuple):
    text: str
    subject: str
    kind: str
    """What the text is, of `KINDS`."""
    urgency: int
    """The place among `URGENCY`."""
    true: tuple[str, str]
    false: tuple[str, str]


TEXTS = (
    Held(
        "The court dismissed the appeal on Friday. The judges found that the contract had been valid from the start.",
        "law", "report", 0,
        ("The appeal was dismissed.", "Did judges find the contract valid?"),
        ("The appeal succeeded.", "Did the court decide on a Monday?"),
    ),
    Held(
        "May my landlord's lawyer read letters that were addressed to me, or do I have to agree to it first?",
        "law", "question", 1,
        ("Is the text about letters?", "The writer wants to know what is allowed."),
        ("The writer is a judge.", "Does the writer speak of a robbery?"),
    ),
    Held(
        "The hearing begins in one hour and nobody has brought the witness statement! Fax it to room 12 at once.",
        "law", "instruction", 2,
        ("A statement is missing.", "Is there a hearing today?"),
        ("The hearing was last week.", "Does the writer have a lot of time?"),
    ),
    Held(
        "You have charged me twice for the same transfer, and your hotline keeps me waiting. That is a disgrace.",
        "money", "complaint", 1,
        ("The writer was charged twice.", "Is the writer annoyed?"),
        ("The hotline answered quickly.", "Does the writer praise the bank?"),
    ),
    Held(
        "Interest on savings accounts fell to two per cent in March, the lowest rate since the spring of last year.",
        "money", "report", 0,
        ("Interest fell.", "Is the text about savings?"),
        ("Interest rose.", "Is the rate ten per cent?"),
    ),
    Held(
        "Somebody is emptying my account right now! Block my card immediately, please, before everything is gone.",
        "money", "instruction", 2,
        ("The writer wants the card blocked.", "Is money being stolen?"),
        ("The writer wants a loan.", "Is the writer calm?"),
    ),
    Held(
        "Clouds will clear in the afternoon. Temperatures reach twelve degrees on the coast and nine in the hills.",
        "weather", "report", 0,
        ("It is warmer on the coast than in the hills.", "Will the clouds clear?"),
        ("It will snow all day.", "Is it thirty degrees?"),
    ),
    Held(
        "A tornado is heading for the village. Leave your homes now and go to the shelter under the town hall.",
        "weather", "instruction", 2,
        ("There is danger.", "Should people leave their homes?"),
        ("People should stay at home.", "Is it a sunny day?"),
    ),
    Held(
        "Will it rain on Sunday? We would like to have our picnic by the lake, and there is no roof there.",
        "weather", "question", 0,
        ("The writer plans a picnic.", "Is the text about Sunday?"),
        ("The writer plans a wedding.", "Is there a roof by the lake?"),
    ),
    Held(
        "Thank you so much for last night's concert. The violins were magical and I was humming all the way home.",
        "music", "thanks", 0,
        ("The writer enjoyed the concert.", "Were there violins?"),
        ("The writer left the concert early.", "Was the concert boring?"),
    ),
    Held(
        "Press the string down just behind the fret, keep the thumb low, and strike it with the other hand.",
        "music", "instruction", 0,
        ("The text explains how to play.", "Should the thumb be kept low?"),
        ("The text is about a piano.", "Is the writer crying?"),
    ),
    Held(
        "The amplifier that you rented to us hums so loudly that the singer cannot be heard. We paid for a good one.",
        "music", "complaint", 1,
        ("The amplifier is noisy.", "Did they rent an amplifier?"),
        ("The amplifier works well.", "Can the singer be heard easily?"),
    ),
    Held(
        "Our teacher stayed two hours longer to explain fractions to me. I am very grateful, now I understand them.",
        "school", "thanks", 0,
        ("The teacher helped the writer.", "Is the writer grateful?"),
        ("The teacher went home early.", "Is the writer still confused?"),
    ),
    Held(
        "When is the last day to enrol for the evening course in Spanish, and do I need a certificate for it?",
        "school", "question", 1,
        ("The writer wants to learn Spanish.", "Is the course in the evening?"),
        ("The writer wants to learn to swim.", "Is the course in the morning?"),
    ),
    Held(
        "My son's essay was marked as missing although he handed it in on time. Nobody replies to our letters.",
        "school", "complaint", 1,
        ("The essay was handed in on time.", "Are the letters left without a reply?"),
        ("The essay was handed in late.", "Did the school reply at once?"),
    ),
    Held(
        "Cut the roses back in March, above a bud that points outwards, and give them compost afterwards.",
        "gardening", "instruction", 0,
        ("Roses should be cut in March.", "Should the roses get compost?"),
        ("Roses should be cut in August.", "Is the text about apples?"),
    ),
    Held(
        "The seedlings arrived dry and half of the pots were broken. I have never bought such bad plants before.",
        "gardening", "complaint", 1,
        ("Some pots were broken.", "Were the plants bad?"),
        ("The plants were healthy.", "Is the buyer delighted?"),
    ),
    Held(
        "Why do the leaves of my tomatoes turn yellow from below, although I water them every evening?",
        "gardening", "question", 1,
        ("The leaves turn yellow.", "Does the writer grow tomatoes?"),
        ("The leaves turn blue.", "Does the writer forget to water?"),
    ),
    Held(
        "Help, my dog has swallowed a battery and can hardly breathe! Which clinic is open at this hour?",
        "animals", "question", 2,
        ("The dog is in danger.", "Did the dog swallow something?"),
        ("The dog is fine.", "Is the text about a cat?"),
    ),
    Held(
        "Storks have returned to the valley. Observers counted eleven pairs this spring, two more than a year ago.",
        "animals", "report", 0,
        ("There are more storks than a year ago.", "Are there eleven pairs?"),
        ("The storks have disappeared.", "Are the birds owls?"),
    ),
    Held(
        "A big thank-you to the shelter: our new cat sleeps on the sofa, purrs, and has made friends with everybody.",
        "animals", "thanks", 0,
        ("The cat comes from a shelter.", "Does the cat purr?"),
        ("The cat ran away.", "Is the cat afraid of everybody?"),
    ),
    Held(
        "The brakes failed on the motorway this morning, and the garage had checked them only yesterday. Unbelievable!",
        "cars", "complaint", 2,
        ("The brakes failed.", "Is the writer upset with the garage?"),
        ("The brakes worked.", "Was it a problem with the radio?"),
    ),
    Held(
        "Check the oil with the engine cold: pull out the stick, wipe it, push it in again and read the mark.",
        "cars", "instruction", 0,
        ("The engine should be cold.", "Is it explained how to check the oil?"),
        ("The engine should be hot.", "Is the text about tyres?"),
    ),
    Held(
        "Sales of electric vehicles grew by a fifth in the first quarter, while those of diesels went down.",
        "cars", "report", 0,
        ("More electric vehicles were sold.", "Did sales of diesels fall?"),
        ("Fewer electric vehicles were sold.", "Is the text about bicycles?"),
    ),
    Held(
        "Water is pouring through the ceiling of my flat. Send a plumber at once, the whole floor is flooded!",
        "housing", "instruction", 2,
        ("The floor is flooded.", "Is a plumber needed?"),
        ("The floor is dry.", "Is an electrician needed?"),
    ),
    Held(
        "The heating has been cold since October, and the landlord laughs at us. We will not put up with it any more.",
        "housing", "complaint", 1,
        ("The heating does not work.", "Are the tenants angry?"),
        ("The heating works well.", "Is the landlord helpful?"),
    ),
    Held(
        "How large is the second bedroom, and is there a cellar for two bicycles that belongs to the flat?",
        "housing", "question", 0,
        ("The writer asks about a cellar.", "Does the writer have bicycles?"),
        ("The writer asks about a garage.", "Does the writer want to sell a horse?"),
    ),
    Held(
        "Astronomers have found a planet that circles its star in four days. It is larger than Jupiter and far hotter.",
        "astronomy", "report", 0,
        ("A planet was found.", "Is the planet larger than Jupiter?"),
        ("A comet was found.", "Is the planet very cold?"),
    ),
    Held(
        "Could you tell me which of the moons of Saturn I can see with a telescope of four inches?",
        "astronomy", "question", 0,
        ("The writer has a telescope in mind.", "Is the text about Saturn?"),
        ("The writer asks about Mars.", "Is the text about fishing?"),
    ),
    Held(
        "Thanks to the observatory for the open night. My daughter saw the rings of Saturn and wants to fly there.",
        "astronomy", "thanks", 0,
        ("The daughter saw the rings.", "Was there an open night?"),
        ("The daughter saw nothing.", "Was the observatory closed?"),
    ),
    Held(
        "Thank you, colleagues, for the flowers and the kind words on my last day. I will miss this office.",
        "work", "thanks", 0,
        ("The writer leaves the office.", "Did the writer get flowers?"),
        ("The writer is new in the office.", "Did the writer get a car?"),
    ),
    Held(
        "Fill in the form for your holidays by Thursday, have it signed by your manager and send it to payroll.",
        "work", "instruction", 1,
        ("The form has to be signed.", "Is Thursday the last day?"),
        ("No signature is needed.", "Should the form be burnt?"),
    ),
    Held(
        "The factory hired sixty people in May, most of them welders. Night shifts begin again after the summer.",
        "work", "report", 0,
        ("People were hired.", "Were most of them welders?"),
        ("People were dismissed.", "Were most of them nurses?"),
    ),
    Held(
        "I am grateful for your parcel of novels. I have read three in a week, and the last one made me cry.",
        "books", "thanks", 0,
        ("The writer got novels.", "Did the writer read three?"),
        ("The writer dislikes reading.", "Did the writer get shoes?"),
    ),
    Held(
        "Who wrote the story of the lighthouse keeper's daughter, and is there a translation into English?",
        "books", "question", 0,
        ("The writer looks for an author.", "Is the story about a keeper's daughter?"),
        ("The writer looks for a hotel.", "Is the story about a king?"),
    ),
    Held(
        "Half of the pages are upside down and the last chapter is missing. Why do you sell such a book? Shame on you!",
        "books", "complaint", 1,
        ("The last chapter is missing.", "Is something wrong with the pages?"),
        ("The book is complete.", "Does the reader recommend it?"),
    ),
)  # fmt: skip
