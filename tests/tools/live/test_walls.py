"""Walls in place of pages are refused, and pages that talk of walls are pages."""

import pytest

from drv_env.tools.live.extraction import read_html
from drv_env.tools.live.walls import wall_in_html, wall_in_text
from tests.tools.live.wall_sources import FETCHED_PAGES, FETCHED_WALLS
from tests.tools.live.wall_texts import PAGES, WALLS

# name: title, text as a reader service gives it, warned
WALLS_IN_TEXT = {
    "cloudflare": (
        "Just a moment...",
        "# www.mills.org\n\nVerify you are human by completing the action below.\n\nwww.mills.org "
        "needs to review the security of your connection before proceeding.",
        True,
    ),
    "cloudflare, without a warning": (
        "Just a moment...",
        "## mills.org\n\n## Performing security verification\n\nThis website uses a security "
        "service "
        "to protect against malicious bots. This page is displayed while the website verifies you "
        "are not a bot.\n\nRay ID: 8f2e1a9b3c4d5e6f\n\nPerformance & security by Cloudflare",
        False,
    ),
    "cloudflare, untitled": (
        "mills.org",
        "# mills.org\n\nChecking if the site connection is secure\n\nmills.org needs to review "
        "the "
        "security of your connection before proceeding.",
        False,
    ),
    "cloudflare, old": (
        "Just a moment...",
        "Checking your browser before accessing mills.org.\n\nThis process is automatic. Your "
        "browser "
        "will redirect to your requested content shortly.\n\nPlease allow up to 5 "
        "seconds…\n\nDDoS "
        "protection by [Cloudflare](https://www.cloudflare.com)",
        False,
    ),
    "cloudflare, blocked": (
        "Attention Required! | Cloudflare",
        "# Sorry, you have been blocked\n\n## You are unable to access mills.org\n\n## Why have I "
        "been "
        "blocked?\n\nThis website is using a security service to protect itself from online "
        "attacks. "
        "The action you just performed triggered the security solution.\n\n## What can I do to "
        "resolve this?\n\nYou can email the site owner to let them know you were blocked.",
        False,
    ),
    "datadome": ("mills.com", "Please enable JS and disable any ad blocker", False),
    "akamai": (
        "Access Denied",
        "# Access Denied\n\nYou don't have permission to access "
        '"http://www.mills.com/history" on this server.\n\n'
        "Reference #18.5d3f1160.1700000000.2ab3c4d\n\n"
        "https://errors.edgesuite.net/18.5d3f1160.1700000000.2ab3c4d",
        False,
    ),
    "human": (
        "Access to this page has been denied",
        "# Press & Hold to confirm you are a human (and not a bot).\n\nReference ID 4f2c-aa11",
        False,
    ),
    "incapsula": (
        "",
        "Request unsuccessful. Incapsula incident ID: 877000450123456789-123456789012345678",
        False,
    ),
    "imperva": (
        "Pardon Our Interruption",
        "As you were browsing something about your browser made us think you were a bot. There "
        "are "
        "a few reasons this might happen:\n\n* You've disabled JavaScript in your web browser.\n* "
        "You're a power user moving through this website with super-human speed.\n\nTo regain "
        "access, "
        "please make sure that cookies and JavaScript are enabled before reloading the page.",
        True,
    ),
    "google": (
        "https://www.google.com/search?q=mill",
        "About this page\n\nOur systems have detected unusual traffic from your computer network. "
        "This page checks to see if it's really you sending the requests, and not a robot. Why "
        "did "
        "this happen?\n\nIP address: 192.0.2.7\nTime: 2026-01-02T03:04:05Z\nURL: "
        "https://www.google.com/search?q=mill",
        True,
    ),
    "amazon": (
        "Amazon.com",
        "#### Enter the characters you see below\n\nSorry, we just need to make sure you're not a "
        "robot."
        " For best results, please make sure your browser is accepting cookies.\n\n#### Type the "
        "characters you see in this image:\n\n[Try different image](https://x/errors)\n\nContinue "
        "shopping\n\n[Conditions of Use](https://x/a) [Privacy Policy](https://x/b)",
        True,
    ),
    "a newspaper": (
        "Bloomberg - Are you a robot?",
        "## We've detected unusual activity from your computer network\n\nTo continue, please "
        "click "
        "the box below to let us know you're not a robot.\n\n### Why did this happen?\n\nPlease "
        "make "
        "sure your browser supports JavaScript and cookies and that you are not blocking them "
        "from "
        "loading. For more information you can review our Terms of Service and Cookie Policy.",
        True,
    ),
    "vercel": ("Vercel Security Checkpoint", "We're verifying your browser", False),
    "anubis": (
        "Making sure you're not a bot!",
        "Making sure you're not a bot!\n\nLoading...\n\nProtected by Anubis from Techaro.",
        False,
    ),
    "litespeed": ("Bot Verification", "Verifying that you are not a robot...", False),
    "siteground": ("Robot Challenge Screen", "Checking the site connection security", False),
    "f5": (
        "Request Rejected",
        "The requested URL was rejected. Please consult with your administrator.\n\nYour support "
        "ID "
        "is: 1234567890123456789\n\n[Go Back]",
        False,
    ),
    "a shop": (
        "Robot or human?",
        "Activate and hold the button to confirm that you're human. Thank "
        "You!\n\nTry a different method",
        False,
    ),
    "a package index": (
        "Client Challenge",
        "JavaScript is disabled in your browser.\n\nPlease enable JavaScript to proceed.\n\nA "
        "required "
        "part of this site couldn’t load. This may be due to a browser extension, network issues, "
        "or "
        "browser settings.",
        False,
    ),
    "react": ("Mill Explorer", "You need to enable JavaScript to run this app.", False),
    "vue": (
        "mill-explorer",
        "We're sorry but mill-explorer doesn't work properly without JavaScript enabled. Please "
        "enable it to continue.",
        False,
    ),
    "a social network": (
        "x.com",
        "JavaScript is not available.\n\nWe’ve detected that JavaScript is disabled in this "
        "browser. "
        "Please enable JavaScript or switch to a supported browser to continue using x.com. "
        "\n\n[Help "
        "Center](https://help.x.com)\n\nTerms of Service Privacy Policy Cookie Policy",
        False,
    ),
    "consent": (
        "Before you continue to Google Search",
        "# Before you continue to Google\n\nWe use cookies and data to\n\n* Deliver and maintain "
        "Google "
        "services\n* Track outages and protect against spam\n\nIf you choose to “Accept all,” we "
        "will "
        "also use cookies and data to\n\nAccept all\n\nReject all\n\nMore options",
        False,
    ),
    "german": (
        "Nur einen Moment…",
        "Bestätigen Sie, dass Sie ein Mensch sind. Dies kann einige Sekunden dauern.",
        False,
    ),
    "french": (
        "Un instant…",
        "Vérifiez que vous êtes humain en effectuant l’action ci-dessous.",
        False,
    ),
    "spanish": (
        "Un momento…",
        "Verifique que usted es un ser humano realizando la siguiente acción.",
        False,
    ),
    "russian": (
        "Вы не робот?",
        "Подтвердите, что запросы отправляли вы, а не робот.\n\nНажмите, чтобы продолжить",
        True,
    ),
    "chinese": ("百度安全验证", "百度安全验证\n\n请完成下方验证\n\n拖动左侧滑块使图片为正", False),
    "chinese, an account": (
        "Weixin Official Accounts Platform",
        "## 环境异常\n\n当前环境异常，完成验证后即可继续访问。\n\n[去验证](https://mp.example.cn/s/x)",
        True,
    ),
    "japanese": (
        "",
        "お使いのコンピュータ ネットワークから通常と異なるトラフィックが検出されました。",
        True,
    ),
    "korean": ("보안 확인", "로봇이 아닙니다. 아래의 문자를 입력해 주세요.", False),
    "a language that is not known": ("Just a moment...", "mills.example", False),
}

STORY = (
    "The mill on the Tavel was built in 1912 by Ada Tavelin. It ground rye for the three villages "
    "around it until the flood of 1954, and is a museum today. "
)
# name: title, text, warned
PAGES_IN_TEXT = {
    "an article on captchas": (
        "CAPTCHA",
        "A CAPTCHA is a test by which a site tells people from robots. The word was made up in "
        "2003 by "
        "a group at Carnegie Mellon. Visitors verify that they are human by reading bent letters. "
        "Critics say that it shuts out the blind.",
        True,
    ),
    "a long article that quotes walls": (
        "Just a moment...",
        "Verify you are human. Enable JavaScript and cookies to continue. " + STORY * 40,
        True,
    ),
    "a forum": (
        "Just a moment... | Mill Talk",
        "# Just a moment...\n\nanna, 3 May: My miller's site shows only these words since last "
        "week, and "
        'never the opening hours.\n\nben, 4 May: It says "Checking your browser" on mine. Take out '
        "the plug-in that hides your address.",
        False,
    ),
    "a film": ("Just a Moment", "A silent film of 1912 about a miller and his daughters.", False),
    "a song": ("Access Denied", "Access Denied is a song by Ada Tavelin, released in 1994.", False),
    "a tutorial": (
        "How to enable JavaScript in your browser",
        "Enable JavaScript in Firefox: open about:config, look for javascript.enabled and set it "
        "to true. "
        "In Chrome open the settings, choose Privacy and security, then Site settings.",
        False,
    ),
    "a page with a hint": (
        "The mill",
        "The mill was built in 1912.\n\nPlease enable JavaScript to view the comments powered by "
        "Disqus.",
        False,
    ),
    "a page with a form that has a captcha": (
        "Contact",
        "Write to the mill at 3 Mill Lane, Morvane. We are open from nine to five, on Sundays "
        "from ten.\n\n"
        "Name\n\nMessage\n\nThis site is protected by reCAPTCHA and the Google Privacy Policy and "
        "Terms "
        "of Service apply.",
        True,
    ),
    "a short page": ("The mill", "It was built in 1912.", False),
    "a short page with a warning": ("The mill", "The mill was built in 1912 by Ada Tavelin.", True),
    "a page with a banner": (
        "The mill",
        "We use cookies to improve our site.\n\nAccept all\n\nReject all\n\n" + STORY * 3,
        False,
    ),
    "a robot": (
        "Are you a robot? A museum asks",
        "The museum of Morvane shows forty robots of the last century. Visitors are asked at the "
        "door "
        "whether they are one, and most say no.",
        False,
    ),
    "a company": (
        "Security verification for banks",
        "Tavelin Ltd verifies the security of banks. The company was founded in 1994 in Morvane "
        "and has "
        "forty employees.",
        True,
    ),
    "an incident": (
        "Status",
        "On 3 May unusual traffic from one network took the mill's site down for two hours. We "
        "blocked "
        "it at noon. All systems work.",
        False,
    ),
    "a chinese article": (
        "验证码",
        "验证码是一种区分用户是计算机还是人的公共全自动程序。这个词最早是在二〇〇二年由卡内基梅隆大学的研究人员所提出。"
        "它可以防止恶意破解密码、刷票、论坛灌水。",
        True,
    ),
    "a name and a number": ("Ada Tavelin", "1912", False),
    "nothing": ("", "", True),
}


@pytest.mark.parametrize("name", WALLS_IN_TEXT)
def test_a_wall_in_a_readers_text_is_seen(name):
    title, text, warned = WALLS_IN_TEXT[name]
    assert wall_in_text(title, text, warned=warned) is not None


@pytest.mark.parametrize("name", PAGES_IN_TEXT)
def test_a_page_that_talks_of_walls_is_a_page(name):
    title, text, warned = PAGES_IN_TEXT[name]
    assert wall_in_text(title, text, warned=warned) is None


@pytest.mark.parametrize(("title", "text", "warned"), WALLS)
def test_more_walls_are_seen(title, text, warned):
    assert wall_in_text(title, text, warned=warned) is not None


@pytest.mark.parametrize(("title", "text", "warned"), PAGES)
def test_more_pages_are_pages(title, text, warned):
    assert wall_in_text(title, text, warned=warned) is None


def page(title, body, head=""):
    return f"<html><head><title>{title}</title>{head}</head><body>{body}</body></html>"


WALLS_IN_HTML = {
    "google": page(
        "https://www.google.com/search?q=mill",
        "<form id='captcha-form' action='index'><div "
        "class='g-recaptcha'></div></form><hr><b>About this "
        "page</b><br>Our systems have detected unusual traffic from your computer network. This "
        "page "
        "checks to see if it&#39;s really you sending the requests, and not a robot. <a>Why did "
        "this "
        "happen?</a><div>This page appears when requests come from your network that seem to be "
        "in "
        "violation of the terms. The block will expire shortly after those requests stop. They "
        "may have "
        "been sent by malicious software, a plug-in, or a script.</div>IP address: 192.0.2.7",
    ),
    "incapsula": page(
        "",
        "<iframe src='/_Incapsula_Resource?CWUDNSAI=23'>Request unsuccessful. Incapsula "
        "incident "
        "ID: 1-2</iframe><p>Request unsuccessful. Incapsula incident ID: 1-2</p>",
    ),
    "turnstile": page(
        "mills.org",
        "<div class='cf-turnstile'></div><p>Please complete the check to go on.</p>",
    ),
    "cloudflare": page(
        "Just a moment...",
        "<h1>mills.org</h1><p>Performing security verification</p><p>Enable JavaScript and "
        "cookies to "
        "continue</p><script>window._cf_chl_opt={cType:'managed'}</script>",
    ),
    "cloudflare in a language of its own": page(
        "Hetkinen...",
        "<h1>mills.org</h1><p>Vahvista, että olet ihminen, suorittamalla alla oleva "
        "toimenpide.</p>"
        "<script>(function(){window._cf_chl_opt={cvId:'3'};var a=document.createElement('script');"
        "a.src='/cdn-cgi/challenge-platform/h/g/orchestrate/chl_page/v1';}())</script>",
    ),
    "datadome": page(
        "mills.com",
        "<p id='cmsg'>Please enable JS and disable any ad blocker</p><script "
        "data-cfasync='false'>var "
        "dd={'rt':'c','cid':'x','host':'geo.captcha-delivery.com'}</script>"
        "<script src='https://ct.captcha-delivery.com/c.js'></script>",
    ),
    "human": page(
        "Access to this page has been denied.",
        "<div id='px-captcha'></div><p>Please verify you are a "
        "human</p><script>window._pxAppId='PX1';"
        "</script>",
    ),
    "aws": page(
        "Human Verification",
        "<script>window.awsWafCookieDomainList=[];window.gokuProps={'key':'x'};</script><div id="
        "'challenge-container'></div><noscript><h1>JavaScript is disabled</h1>In order to "
        "continue, we "
        "need to verify that you're not a robot. This requires JavaScript. Enable JavaScript and "
        "then "
        "reload the page.</noscript>",
    ),
    "amazon": page(
        "Amazon.com",
        "<h4>Enter the characters you see below</h4><p>Sorry, we just need to make sure you're "
        "not a "
        "robot.</p><form action='/errors/validateCaptcha'><input name='field-keywords'></form>",
    ),
    "anubis": page(
        "Making sure you&#39;re not a bot!",
        "<h1>Making sure you&#39;re not a bot!</h1><p>Loading...</p><p>You are seeing this "
        "because the "
        "administrator of this website has set up Anubis to protect the server against the "
        "scourge of "
        "AI companies aggressively scraping websites.</p><script id='anubis_challenge' type="
        "'application/json'>{}</script>",
    ),
    "akamai": page(
        "Access Denied",
        "<h1>Access Denied</h1>You don't have permission to access "
        '"http&#58;&#47;&#47;mills&#46;com" '
        "on this server.<p>Reference&#32;&#35;18&#46;5d3f1160</p>",
    ),
    "a widget": page(
        "mills.org",
        "<p>One more step: please complete the security check to access mills.org</p><div class="
        "'h-captcha' data-sitekey='x'></div><script "
        "src='https://js.hcaptcha.com/1/api.js'></script>",
    ),
    "an app": page(
        "Mill Explorer",
        "<noscript>You need to enable JavaScript to run this app.</noscript><div id='root'></div>"
        "<script src='/static/js/main.js'></script>",
    ),
    "consent": page(
        "Before you continue to YouTube",
        "<p>We use cookies and data to deliver and maintain services.</p><p>If you choose to "
        "“Accept "
        "all,” we will also use cookies and data to develop and improve new services.</p><form "
        "action="
        "'https://consent.youtube.com/save'><button>Accept all</button></form>",
    ),
}

PAGES_IN_HTML = {
    "an article on captchas": page(
        "CAPTCHA",
        "<article><h1>CAPTCHA</h1><p>A CAPTCHA is a test that tells humans from machines. It was "
        "invented "
        "in 2000.</p><p>Verify you are human, it says.</p></article><script "
        "src='https://js.hcaptcha.com/"
        "1/api.js'></script>",
    ),
    "a forum": page(
        "Just a moment...",
        "<div><p>Since Monday I only see this page when I open the site of the "
        "mill.</p></div><div><p>"
        "Same here, it went away when I switched off the tunnel.</p></div>",
    ),
    "a short page with a widget": page(
        "The mill",
        "<p>Its owner is Salen.</p><div class='g-recaptcha'></div><noscript>Please enable "
        "JavaScript to "
        "continue</noscript>",
    ),
    "a page behind cloudflare": page(
        "The mill",
        f"<article><p>{STORY}</p></article><script>(function(){{window.__CF$cv$params={{r:'8'}};"
        "var a="
        "document.createElement('script');a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';}())"
        "</script>",
    ),
    "a page with a form behind turnstile": page(
        "Contact",
        f"<article><p>{STORY}</p></article><form><div class='cf-turnstile'></div><button>Verify "
        f"you are "
        "human</button></form><script "
        "src='https://challenges.cloudflare.com/turnstile/v0/api.js'></script>",
    ),
    "a short page with a hint for those without scripts": page(
        "The mill",
        "<p>The mill was built in 1912.</p><noscript>You need to enable JavaScript to run this "
        "app. "
        "Please enable JavaScript to continue using this site.</noscript>",
    ),
    "a page whose text stands in noscript": page(
        "The mill", f"<div id='app'></div><noscript><p>{STORY}</p></noscript>"
    ),
    "a lesson with the machinery in its text": page(
        "How a challenge works",
        "<article><p>The page sets a global and loads a script from the challenge "
        "platform:</p><pre>&lt;"
        "script&gt;window._cf_chl_opt={}&lt;/script&gt;</pre><p>It then asks you to verify that "
        "you are "
        "human, and sets a cookie that lasts half an hour.</p></article>",
    ),
    "a page guarded by datadome": page(
        "The mill",
        f"<article><p>{STORY}</p></article><script src='https://js.datadome.co/tags.js'></script>",
    ),
    "a page guarded by incapsula": page(
        "The mill",
        f"<article><p>{STORY}</p></article><script src='/_Incapsula_Resource?SWJIYLWA=x'></script>",
    ),
    "a poem": page(
        "Just a moment", "<p>Just a moment, said the miller, and the wheel stood still.</p>"
    ),
}


@pytest.mark.parametrize("name", WALLS_IN_HTML)
def test_a_wall_that_was_fetched_is_seen(name):
    title, text = read_html(WALLS_IN_HTML[name])
    assert wall_in_html(WALLS_IN_HTML[name], title, text) is not None, (title, text)


@pytest.mark.parametrize("name", FETCHED_WALLS)
def test_more_walls_that_were_fetched_are_seen(name):
    source = FETCHED_WALLS[name]
    title, text = read_html(source)
    assert not text or wall_in_html(source, title, text) is not None, (title, text)


@pytest.mark.parametrize("name", FETCHED_PAGES)
def test_more_fetched_pages_are_pages(name):
    source = FETCHED_PAGES[name]
    title, text = read_html(source)
    assert wall_in_html(source, title, text) is None, (title, text)
    assert len(text) > 20


@pytest.mark.parametrize(
    "page",
    [
        "<h1>Salen mill, built 1912</h1>{}{}",
        "<div><h1>Salen mill,\n <em>built</em> 1912</h1>{}{}</div>",
        "<header><h1 class='a'>Salen mill, built&nbsp;1912</h1></header>{}{}",
        "<main><h1>Salen mill, built 1912</h1>{}{}</main>",
        "<H1>Salen mill</H1>{}{}<figure><img src='x'><figcaption>built 1912</figcaption></figure>",
        "<h1>Salen mill</h1>{}{}<details><summary>When?</summary>It was built 1912.</details>",
        "<h1>Salen mill</h1>{}{}<details open><p>It was built 1912.</p></details>",
    ],
)
def test_headings_captions_and_what_is_folded_up_are_text(page):
    said = "<p>Its {} was Jan Weir, who bought it from the town after the flood.</p>"
    source = page.format(said.format("owner"), said.format("miller"))
    title, text = read_html(f"<html><head><title>T</title></head><body>{source}</body></html>")
    assert (title, text.count("built 1912"), text.count("Salen mill")) == ("T", 1, 1)


@pytest.mark.parametrize("name", PAGES_IN_HTML)
def test_a_fetched_page_with_the_parts_of_a_wall_is_a_page(name):
    title, text = read_html(PAGES_IN_HTML[name])
    assert text.strip()
    assert wall_in_html(PAGES_IN_HTML[name], title, text) is None, (title, text)


HOSTILE = [
    "<" * 400_000,
    "<script" * 60_000,
    "<noscript>" * 40_000,
    "[" * 4_000,
    "to use " * 570,
    "we need to " * 360,
    "please, " * 500,
    "verify you " * 360,
    "a.b" * 1_300,
    "İ" * 4_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_judged_at_once(text):
    """Each within what its size allows: a piece is bounded, and no choice multiplies another."""
    wall_in_text(text[:200], text[:4_000], warned=True)
    wall_in_html(text, text[:200], text[:4_000])
